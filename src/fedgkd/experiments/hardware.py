"""What a run may use of the machine."""

from __future__ import annotations

import os

import torch

from fedgkd.errors import SettingError, quoted


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
