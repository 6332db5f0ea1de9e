"""Runs fedgkd in processes that are killed, or find the disk full, from a chosen step in the file system on.

Started as a program, it loads fedgkd once, and forks for every command that it is sent: a line of JSON with ``args``,
the folder ``root`` whose steps count, the step to ``kill`` at, the step from which the disk is ``full``, and the bytes
that a file may hold at most as ``limit`` (0: none of it). It answers with a line: exit ``code`` (negative: killed),
``said`` (stderr), and the ``steps`` that were taken.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")


class Killer:
    """A process that runs commands and kills them."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, *args: str | Path, root: Path, kill: int = 0, full: int = 0, limit: int = 0) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"args": [str(arg) for arg in args], "root": str(root), "kill": kill, "full": full, "limit": limit}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return cast(dict[str, Any], json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()


class _Steps:
    """Counts what changes files below a folder, and dies before one of these steps, or refuses those that need room."""

    def __init__(self, order: dict[str, Any], count: mmap.mmap) -> None:
        self._root, self._kill, self._full, self._count = order["root"], order["kill"], order["full"], count
        self.taken = 0

    def watch(self) -> None:
        sys.addaudithook(self._on_event)
        # Python tells of no writing; these two are where fedgkd waits for the disk, and where it writes in place.
        self._before("fsync", lambda handle: None)
        self._before("pwrite", _write_half)

    def _before(self, name: str, at_the_end: Callable[..., Any]) -> None:
        real = getattr(os, name)

        def step(handle: int, *args: Any) -> Any:
            self._take(_path_of(handle), lambda: at_the_end(handle, *args))
            return real(handle, *args)

        setattr(os, name, step)

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            if isinstance(path, str | bytes | Path) and (flags or 0) & _WRITES:
                self._take(path)
        elif event in _EVENTS and not isinstance(args[0], int):
            folder = args[-1] if event in ("os.remove", "os.rmdir") else -1
            above = _path_of(folder) if isinstance(folder, int) and folder >= 0 else ""
            path = os.path.join(above, os.fsdecode(args[0]))  # noqa: PTH118
            self._take(path, grows=event == "os.mkdir")

    def _take(
        self, path: str | bytes | Path, at_the_end: Callable[[], object] = lambda: None, *, grows: bool = True
    ) -> None:
        if os.path.abspath(os.fsdecode(path)).startswith(self._root):  # noqa: PTH100
            self.taken += 1
            self._count[:] = self.taken.to_bytes(8)
            if self.taken == self._kill:
                at_the_end()
                os.kill(os.getpid(), signal.SIGKILL)
            if grows and self._full and self.taken >= self._full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _path_of(handle: int) -> str:
    return str(Path(f"/proc/self/fd/{handle}").readlink())


def _write_half(handle: int, data: Any, position: int) -> None:
    os.lseek(handle, position, os.SEEK_SET)
    os.write(handle, bytes(data)[: len(data) // 2])


def _serve() -> None:
    import fedgkd.cli
    import fedgkd.cli.experiments
    import fedgkd.experiments.api
    import fedgkd.experiments.model_file
    import fedgkd.experiments.workers
    import fedgkd.reporting.writing  # noqa: F401

    for line in sys.stdin:
        order = json.loads(line)
        with tempfile.TemporaryFile() as said, mmap.mmap(-1, 8) as count:
            child = os.fork()
            if not child:
                _run(order, said.fileno(), count)
            _, status = os.waitpid(child, 0)
            said.seek(0)
            answer = {
                "code": os.waitstatus_to_exitcode(status),
                "said": said.read().decode(),
                "steps": int.from_bytes(count[:]),
            }
        print(json.dumps(answer), flush=True)


def _run(order: dict[str, Any], said: int, count: mmap.mmap) -> None:
    from fedgkd.cli import main

    null = os.open(os.devnull, os.O_RDWR)
    for ours, theirs in ((null, 0), (null, 1), (said, 2)):
        os.dup2(ours, theirs)
    sys.argv = ["fedgkd", *order["args"]]
    code: int | str | None = 1
    try:
        if order["limit"]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (order["limit"], order["limit"]))
        _Steps(order, count).watch()
        main()
    except SystemExit as end:
        code = end.code
    finally:
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    _serve()
