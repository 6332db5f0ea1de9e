"""Folders that one process at a time works in."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedgkd.errors import RunError


@contextmanager
def locked(folder: Path, *, wait: bool) -> Iterator[None]:
    """Hold a folder, which is made if need be; the system lets go of it when the process ends, however it ends.

    Raises:
        RunError: If another process holds it and we are not to wait, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("w")
    except OSError as error:
        raise RunError(f"cannot write to {folder}: {error.strerror or error}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise RunError(f"another fedgkd is at work in {folder}; wait for it, or choose another --out") from None
        yield
