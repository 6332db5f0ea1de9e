"""A job process that has lost the process which started it ends: a killed coordinator or site leaves nothing behind."""

from __future__ import annotations

import os
import threading
import time

_LOOK = 0.5


def end_with_parent() -> None:
    """Watch over this process's parent from a thread, and end without further ado when it is gone."""
    threading.Thread(target=_watch, args=(os.getppid(),), name="lifeline", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os._exit(1)
