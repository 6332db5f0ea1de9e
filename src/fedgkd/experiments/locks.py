"""Folders that one process at a time works in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from fedgkd.atomic import make_folder, remove_leftovers
from fedgkd.errors import RunError

try:
    import fcntl
except ImportError:  # Windows has no such locks; there it is up to the user
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".lock"


@dataclass(frozen=True)
class Lock:
    """A folder's lock file, open."""

    path: Path
    file: FileIO

    @property
    def is_there(self) -> bool:
        """Whether the file still lies in the folder: not if that was removed, even if there is another one now."""
        try:
            return os.path.samestat(os.fstat(self.file.fileno()), self.path.stat())
        except OSError:
            return False

    def check(self) -> None:
        """Raise a RunError if the file is no longer there."""
        if not self.is_there:
            raise removed(self.path.parent)


def removed(folder: Path) -> RunError:
    return RunError(
        f"{folder}, or a file in it, was removed while fedgkd was at work there; nothing more is written; start again"
    )


@contextmanager
def locked(folder: Path, *, wait: bool) -> Iterator[Lock]:
    """Hold a folder, which is made if need be; the system lets go of it when the process ends, however it ends.

    What killed processes left half-written in the folder is removed.

    Raises:
        RunError: If another process holds it and we are not to wait, or the folder cannot be written.
    """
    try:
        make_folder(folder)
        lock = _taken(folder / LOCK_FILE, wait)
    except BlockingIOError:
        raise RunError(f"another fedgkd is at work in {folder}; wait for it, or choose another --out") from None
    except OSError as error:
        raise RunError(f"cannot write to {folder}: {error.strerror or error}") from error
    with lock.file:
        try:
            remove_leftovers(folder)
            yield lock
        finally:
            if lock.is_there:
                with suppress(OSError):  # the folder may be going at this moment
                    lock.path.unlink()


def _taken(path: Path, wait: bool) -> Lock:
    """The lock file, open and ours. Who lets go of it removes it, so what we get may no longer be what lies there."""
    while True:
        with ExitStack() as unless_ours:
            lock = Lock(path, unless_ours.enter_context(FileIO(path, "w")))
            if fcntl is not None:
                fcntl.flock(lock.file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if lock.is_there:
                unless_ours.pop_all()
                return lock
