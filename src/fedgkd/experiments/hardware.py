"""What a run may use of the machine."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import torch

from fedgkd.errors import SettingError, quoted

_CONTAINER = Path("/sys/fs/cgroup/memory.max")


def find_device(name: str) -> torch.device:
    """The device of that name, if it is there."""
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise SettingError(f"device must be cpu, cuda or cuda:N, not {quoted(name)}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise SettingError(
            f"device {name} is not there: PyTorch sees {torch.cuda.device_count()} CUDA devices; use cpu"
        )
    return device


def count_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int:
    """Bytes that this process may use: what the machine has, or less where the system or a container limits it."""
    import resource  # which not every system has

    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        limits.append(soft)
    with suppress(OSError, ValueError):  # there is no such file, or it says "max"
        limits.append(int(_CONTAINER.read_text(encoding="utf-8")))
    return min(limits)
