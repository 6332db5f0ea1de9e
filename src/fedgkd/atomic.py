"""Files appear whole or not at all, and what has appeared survives a power cut.

Until it is whole, a file or folder lies beside its place as ``.<name>.<random>.part``, locked by the process that
writes it. A killed process leaves such a part behind; the process that next writes to the folder removes it.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from fedgkd.errors import FedGKDError

try:
    import fcntl
except ImportError:  # Windows has no such locks: there, parts that were left behind stay
    fcntl = None  # type: ignore[assignment]

_PART = ".part"
_LEFTOVER = re.compile(rf"\..+\.[a-z0-9_]{{8}}{re.escape(_PART)}")


@contextmanager
def atomic_write(path: Path, error: type[FedGKDError], *, make_parents: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it to ``path`` if the block succeeds, else remove it.

    Without ``make_parents`` its folder must be there: one that somebody has removed meanwhile is not made again.

    Raises:
        FedGKDError: Of class ``error``, in one sentence, where the system refuses (disk full, no permission).
    """
    with _refusals(path, error), ExitStack() as in_the_end:
        if make_parents:
            make_folder(path.parent)
        _remove_leftovers_once(path.parent.absolute())
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=_PART)
        in_the_end.callback(os.close, handle)
        in_the_end.callback(Path(name).unlink, missing_ok=True)
        _lock(handle)
        temporary = Path(name)
        yield temporary
        temporary.chmod(0o644)
        _sync_file(temporary)
        temporary.replace(path)
        sync_folder(path.parent)


def atomic_write_text(path: Path, text: str, error: type[FedGKDError], *, make_parents: bool = True) -> None:
    with atomic_write(path, error, make_parents=make_parents) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def atomic_folder(path: Path, error: type[FedGKDError]) -> Iterator[Path]:
    """Yield a temporary folder beside ``path``; it takes the place of ``path`` if the block succeeds, else it goes.

    A folder that ``path`` already names is replaced, with all that it holds.
    """
    with _refusals(path, error), ExitStack() as in_the_end:
        make_folder(path.parent)
        _remove_leftovers_once(path.parent.absolute())
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=_PART))
        in_the_end.callback(shutil.rmtree, temporary, ignore_errors=True)
        if fcntl is not None:
            handle = os.open(temporary, os.O_RDONLY)
            in_the_end.callback(os.close, handle)
            _lock(handle)
        yield temporary
        temporary.chmod(0o755)
        for folder, _, files in os.walk(temporary):
            for file in files:
                _sync_file(Path(folder, file))
            sync_folder(Path(folder))
        if path.exists():
            path.rename(temporary / ".replaced")
        temporary.rename(path)
        sync_folder(path.parent)
        shutil.rmtree(path / ".replaced", ignore_errors=True)


def is_leftover(name: str) -> bool:
    """Whether a file of that name is one that was never finished."""
    return _LEFTOVER.fullmatch(name) is not None


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left unfinished in a folder."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if is_leftover(entry.name) and not _in_use(entry):
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)


@cache
def _remove_leftovers_once(folder: Path) -> None:
    """Not before every file of a thousand: what others leave there from now on is for later processes."""
    remove_leftovers(folder)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, so that a power cut does not take them away again."""
    try:
        path.mkdir()
    except FileNotFoundError:
        make_folder(path.parent)
        make_folder(path)
    except OSError:
        if not path.is_dir():
            raise
    else:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Return when the names in a folder are on the disk."""
    if os.name == "nt":  # which cannot open folders
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as problem:
        if problem.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that know no such thing
            raise
    finally:
        os.close(handle)


def _sync_file(path: Path) -> None:
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _refusals(path: Path, error: type[FedGKDError]) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise error(f"cannot write {path}: {problem.strerror or problem}") from problem


def _lock(handle: int) -> None:
    """Show that a living process is at it."""
    if fcntl is not None:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _in_use(entry: Path) -> bool:
    if fcntl is None:
        return True
    try:
        handle = os.open(entry, os.O_RDONLY)
    except OSError:
        return True  # gone already, or somebody else's
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
