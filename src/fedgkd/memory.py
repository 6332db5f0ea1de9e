"""How much memory there is."""

from __future__ import annotations

import os
from pathlib import Path

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


def available_memory() -> int:
    """Bytes that this process can still take: what the machine has free, and what its limits leave."""
    return max(0, min(_machine(), _control_group(), process_limit()))


def _machine() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 2**62  # not known


def _control_group() -> int:
    """What a container leaves."""
    folder = Path("/sys/fs/cgroup")
    try:
        most = int((folder / "memory.max").read_text(encoding="ascii"))
        return most - int((folder / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such group, or "max"
        return 2**62


def process_limit() -> int:
    """Bytes of address space that ``ulimit -v`` leaves to this process."""
    if resource is None:
        return 2**62
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return 2**62
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        pages = 0
    return most - pages * resource.getpagesize()
