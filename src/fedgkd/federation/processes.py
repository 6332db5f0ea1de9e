"""The foreground processes of coordinator and sites: they start NVIDIA FLARE, watch over it and take it down again."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from fedgkd.errors import FederationError
from fedgkd.experiments.locks import locked
from fedgkd.federation.imports import environment
from fedgkd.federation.kit import COORDINATOR, Kit, settle
from fedgkd.federation.names import ALLOWED, CANNOT_START, WORKER
from fedgkd.federation.network import check_coordinator, check_port_free

TRAINER = "fedgkd.federation.worker"
"""The module that trains, in a process of its own."""
_WATCH = 0.2
_JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_KEPT_JOBS = 3
_PATIENCE = 5.0
"""Seconds that a process has to end by itself."""
_SHORT = 3.0
"""A training process that lives shorter than that is not started again at once."""
_WAIT_FOR_GONE = {"NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "3"}
"""At the end of a segment the coordinator waits so many seconds for word from sites that have gone."""


@dataclass(frozen=True)
class Training:
    """What a site trains on and how."""

    graph: Path
    out: Path
    label: str = "label"
    device: str = "cpu"
    threads: int = 0
    share_metrics: bool = True

    def arguments(self) -> list[str]:
        given = {"graph": self.graph.resolve(), "out": self.out.resolve(), "label": self.label, "device": self.device}
        options = [text for name, value in given.items() for text in (f"--{name}", str(value))]
        return [*options, "--threads", str(self.threads), *([] if self.share_metrics else ["--keep-metrics"])]


def serve(kit: Kit) -> None:
    """The coordinator, in the foreground until it is told to stop."""
    kit.check_certificate()
    kit.plan.check_coordinator()  # what is wrong with the plan is said here, not in a job that nobody sees
    check_port_free(kit.plan.rules.port)
    with locked(kit.path, wait=False), _told_to_stop(), ExitStack() as stack:
        settle(kit)
        command = _flare("server", kit, f"org={COORDINATOR}")
        allowed = {ALLOWED: kit.plan.allowed} if kit.plan.allowed else {}
        flare = stack.enter_context(_process(command, _WAIT_FOR_GONE | allowed, kit.path))
        while flare.poll() is None:
            time.sleep(_WATCH)
        raise FederationError(f"the coordinator ended by itself (code {flare.returncode}); see {kit.path / 'log.txt'}")


def join(kit: Kit, training: Training) -> None:
    """A site, in the foreground until it is told to stop: the training process, and FLARE's client once that is up."""
    kit.check_certificate()
    kit.plan.algorithm()
    check_coordinator(kit)
    name = kit.name
    with locked(kit.path, wait=False), _told_to_stop(), ExitStack() as stack:
        settle(kit)
        address = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedgkd-"))) / "worker"
        options = ["--kit", str(kit.path), "--socket", str(address), *training.arguments()]
        options += ["--allow-algorithm", kit.plan.allowed] if kit.plan.allowed else []
        trainer = stack.enter_context(_Trainer([sys.executable, "-m", TRAINER, *options], kit.path))
        while not address.exists():
            trainer.look()
            time.sleep(_WATCH)
        command = _flare("client", kit, f"uid={name}", f"org={name.replace('-', '_')}")
        flare = stack.enter_context(_process(command, {WORKER: str(address)}, kit.path))
        while flare.poll() is None:
            trainer.look()
            tidy(kit.path)
            time.sleep(_WATCH)
        raise FederationError(
            "the coordinator does not take this site in, or the connection was lost for good; "
            f"see {kit.path / 'log.txt'}"
        )


def tidy(folder: Path) -> None:
    """Remove what FLARE leaves in a site's kit of jobs that are over: a folder each, named by the job's number."""
    jobs = [path for path in folder.iterdir() if _JOB.fullmatch(path.name)]
    for path in sorted(jobs, key=lambda path: path.stat().st_mtime)[:-_KEPT_JOBS]:
        shutil.rmtree(path, ignore_errors=True)


class _Trainer:
    """A site's training process, which is started again when it dies."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command = command
        self._folder = folder
        self._stack = ExitStack()
        self._start()

    def __enter__(self) -> _Trainer:
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()

    def look(self) -> None:
        """See to it that it is running.

        Raises:
            FederationError: If it cannot, for a reason that it has told.
        """
        code = self._process.poll()
        if code is None:
            return
        if code == CANNOT_START:
            reason = (self._folder / "errors.txt").read_text(encoding="utf-8", errors="replace").rstrip()
            raise FederationError(reason.rpartition("\n")[2])
        print(f"the training process ended (code {code}); it is started again", flush=True)
        time.sleep(max(0.0, _SHORT - (time.monotonic() - self._started)))
        self._stack.close()
        self._start()

    def _start(self) -> None:
        self._started = time.monotonic()
        self._process = self._stack.enter_context(_process(self._command, {}, self._folder))


def _flare(side: str, kit: Kit, *settings: str) -> list[str]:
    module = f"nvflare.private.fed.app.{side}.{side}_train"
    fixed = ["secure_train=true", "config_folder=config", *settings]
    return [sys.executable, "-u", "-m", module, "-m", str(kit.path), "-s", f"fed_{side}.json", "--set", *fixed]


@contextmanager
def _process(command: Sequence[str], added: Mapping[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, which ends with this block, and with us if we are killed."""
    with (folder / "errors.txt").open("ab") as errors:
        process = subprocess.Popen(
            command,
            env={**environment(folder), **added},
            cwd=folder,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stderr=errors,
            preexec_fn=_die_with_parent,
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    for way, patience in ((signal.SIGTERM, _PATIENCE), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, way)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@contextmanager
def _told_to_stop() -> Iterator[None]:
    """SIGTERM, which systemd sends, ends all in good order."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(0)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
