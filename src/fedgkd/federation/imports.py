"""Where Python looks for modules in a federation: where software is installed, and nowhere that others can write to.

A kit comes from outside, and people run the commands in its folder. A module that lies there must not be taken for an
installed one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def installed_modules_only(kit: Path) -> Iterator[None]:
    """Import nothing from the working directory or from the kit within this block."""
    before = sys.path[:]
    sys.path[:] = _safe(before, kit)
    try:
        yield
    finally:
        sys.path[:] = before


def environment(kit: Path) -> dict[str, str]:
    """Of a process that runs in the kit's folder, with the same rule."""
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    safe = [entry for entry in _safe(named, kit) if Path(entry).is_absolute()]
    return os.environ | {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(safe)}


def _safe(entries: list[str], kit: Path) -> list[str]:
    return [entry for entry in entries if entry and not (_is_here(entry) or _is_in(entry, kit))]


def _is_here(entry: str) -> bool:
    try:
        return Path(entry).samefile(os.curdir)
    except OSError:  # it does not exist, like many entries
        return False


def _is_in(entry: str, kit: Path) -> bool:
    return Path(entry).resolve().is_relative_to(kit.resolve())
