"""Folders that one process at a time works in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path

from fedgkd.errors import RunError

try:
    import fcntl
except ImportError:  # Windows has no such locks; there it is up to the user
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".lock"


@contextmanager
def locked(folder: Path, *, wait: bool) -> Iterator[None]:
    """Hold a folder, which is made if need be; the system lets go of it when the process ends, however it ends.

    Raises:
        RunError: If another process holds it and we are not to wait, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = _taken(folder / LOCK_FILE, wait)
    except BlockingIOError:
        raise RunError(f"another fedgkd is at work in {folder}; wait for it, or choose another --out") from None
    except OSError as error:
        raise RunError(f"cannot write to {folder}: {error.strerror or error}") from error
    with file:
        try:
            yield
        finally:
            with suppress(OSError):  # the folder may be gone
                (folder / LOCK_FILE).unlink()


def _taken(path: Path, wait: bool) -> FileIO:
    """The lock file, open and ours. Who lets go of it removes it, so what we get may no longer be what lies there."""
    while True:
        with ExitStack() as unless_ours:
            file = unless_ours.enter_context(FileIO(path, "w"))
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    unless_ours.pop_all()
                    return file
