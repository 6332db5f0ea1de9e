"""Every scenario runs while other processes keep all cores busy, as on a machine that has other work."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

_BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"


@pytest.fixture(scope="module", autouse=True)
def busy() -> Iterator[None]:
    """A process for every core that computes without end."""
    with ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", _BUSY]))
            stack.callback(process.kill)
        yield
