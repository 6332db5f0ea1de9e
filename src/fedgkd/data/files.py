"""Opening a file that a user named."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import BinaryIO

from fedgkd.errors import DataError
from fedgkd.memory import available_memory

_HARMLESS = 2**29
_MOST_UNFOLDED = 100


def open_file(path: Path, hint: str = "") -> BinaryIO:
    """The file, opened to read its bytes; ``hint`` says what to do if it is not there.

    Raises:
        DataError: If there is no such file, it cannot be read, or it is a folder, a pipe or a device.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):  # a pipe may never say anything, a device never end
            raise DataError(f"{path}: cannot be read (it is {'a folder' if stat.S_ISDIR(mode) else 'not a file'})")
        return path.open("rb")
    except (FileNotFoundError, NotADirectoryError) as problem:
        raise DataError(f"{path}: no such file{hint}") from problem
    except (OSError, ValueError) as problem:  # ValueError: a zero byte in its name
        raise DataError(f"{path}: cannot be read ({getattr(problem, 'strerror', None) or problem})") from problem


def is_folder(path: Path) -> bool:
    """Whether there is such a folder.

    Raises:
        DataError: If that cannot be said: the name is too long, or the folder around it cannot be read.
    """
    try:
        return path.is_dir()
    except OSError as problem:
        raise DataError(f"{path}: cannot be read ({problem.strerror or problem})") from problem


def check_size(what: str, needed: int, unfolded: int, packed: int) -> None:
    """Raise if what a packed file says that it holds will not fit, before any of it is unfolded.

    Args:
        what: The file, and the part of it.
        needed: Bytes of memory for all that is made of it.
        unfolded: Bytes that it holds.
        packed: Bytes of the file.

    Raises:
        DataError: If the memory is too small, or the file is too small for what it says.
    """
    if needed <= _HARMLESS:
        return
    size = f"{unfolded / 2**30:,.1f} GiB"
    if unfolded > _MOST_UNFOLDED * packed:
        raise DataError(
            f"{what} unfolds to {size}, more than {_MOST_UNFOLDED} times the size of the file; "
            "if that is meant, save it uncompressed, or as sparse rows"
        )
    if needed > available_memory():
        raise DataError(
            f"{what} holds {size} and needs {needed / 2**30:,.1f} GiB of memory, but only "
            f"{available_memory() / 2**30:,.1f} GiB are free; use a smaller graph or a larger machine"
        )
