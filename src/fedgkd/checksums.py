"""What a finished folder held when it was written: ``SHA256SUMS``, a line per file, as ``sha256sum -c`` reads it.

Folders that earlier versions of fedgkd wrote have no such file; they are read unchecked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fedgkd.atomic import atomic_write_text
from fedgkd.errors import RunError

SUMS_FILE = "SHA256SUMS"

_LINE = re.compile(r"([0-9a-f]{64})  ([\w-][\w.-]*(?:/[\w-][\w.-]*)*)\n", re.ASCII)


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_sums(folder: Path, sums: Mapping[str, str]) -> None:
    """Write down the digests of files, by their names as seen from the folder."""
    atomic_write_text(folder / SUMS_FILE, _text(sums), RunError, make_parents=False)


def read_sums(folder: Path) -> dict[str, str] | None:
    """The digests by file; None in a folder without any.

    Raises:
        RunError: If the file is damaged.
    """
    path = folder / SUMS_FILE
    try:
        text = path.read_bytes().decode("ascii")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}); put back a copy of it") from error
    sums = {name: digest for digest, name in _LINE.findall(text)}
    if not sums or _text(sums) != text:
        raise RunError(f"{path} is damaged: it is not a list of digests and files; put back a copy of it")
    return sums


def damaged_files(folder: Path, which: Callable[[str], bool] = lambda name: True) -> Iterator[str]:
    """A sentence for every file of a folder, among those asked for, that is not as it was written."""
    for name, digest in (read_sums(folder) or {}).items():
        if which(name):
            path = folder / name
            try:
                if digest_of(path) != digest:
                    yield f"{path} is damaged: its SHA-256 is not the one in {SUMS_FILE}"
            except FileNotFoundError:
                yield f"{path} is missing, but {SUMS_FILE} lists it"
            except OSError as error:
                yield f"{path} cannot be read ({error.strerror or error})"


def _text(sums: Mapping[str, str]) -> str:
    return "".join(f"{digest}  {name}\n" for name, digest in sums.items())
