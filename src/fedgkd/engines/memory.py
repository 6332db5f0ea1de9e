"""Keep freed memory for the next step instead of handing it back to the system."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_ONE_GIB = 1 << 30


def reuse_freed_memory() -> None:
    """Tell glibc to serve large tensors from its heap, and all threads from the same.

    Every epoch frees and asks for the same tensors of tens of megabytes. By default glibc maps each anew, and the page
    faults cost as much time as the training itself. A heap per thread would keep what it freed from the others. Other C
    libraries are left as they are.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):
            libc.mallopt(_MMAP_THRESHOLD, _ONE_GIB)
            libc.mallopt(_TRIM_THRESHOLD, _ONE_GIB)
            libc.mallopt(_ARENA_MAX, 1)
