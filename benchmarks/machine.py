"""What the figures were measured on, and how much memory a process has used."""

from __future__ import annotations

import os
import platform
import resource
from pathlib import Path
from typing import Any

import torch

import fedgkd


def facts() -> dict[str, Any]:
    """Processor, cores, versions, and how busy the machine is now."""
    build = [line.strip(" -") for line in torch.__config__.show().splitlines()]
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torch_build": [line for line in build if line.startswith(("Intel", "OpenMP", "CPU capability"))],
        "threads": torch.get_num_threads(),
        "fedgkd": fedgkd.__version__,
        "load_before": os.getloadavg()[0],
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def peak_bytes() -> int:
    """The most memory that this process has had.

    On Linux from ``VmHWM``: getrusage would start at what the parent had when it forked.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024
