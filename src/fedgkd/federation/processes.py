"""The foreground processes of coordinator and sites: they start NVIDIA FLARE, watch over it and take it down again."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
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
from fedgkd.federation.names import ALLOWED, CANNOT_START, ENVELOPE, LARGEST, SUSPENDED, WORKER
from fedgkd.federation.network import check_coordinator, check_port_free
from fedgkd.federation.suspended import read_suspended
from fedgkd.federation.wire import FAILED, answered_file, largest_file, receive, send

TRAINER = "fedgkd.federation.worker"
"""The module that trains, in a process of its own."""
_WATCH = 0.2
_JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_KEPT_JOBS = 3
_PATIENCE = 5.0
"""Seconds that a process has to end by itself."""
_SHORT = 3.0
"""A training process that lives shorter than that is not started again at once."""
_GIVE_BACK = {"MALLOC_ARENA_MAX": "2", "MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
"""For glibc: FLARE's hundred threads would each keep what they have freed, and messages in pieces between it."""
_FLARES_LARGEST = "NVFLARE_STREAMING_MAX_BLOB_SIZE"
_TRIES = 3
_FAREWELL = 60.0
"""Seconds that a site which cannot train waits for a question, so that it can say why."""
_PATIENCE_WITH_SITES = {"NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "3", "NVFLARE_DEAD_CLIENT_GRACE_PERIOD": "1e9"}
"""FLARE's, in seconds: at the end of a segment for word from sites that have gone; and until it ends a job because all
of them have gone, which is for the coordinator to decide."""


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
    from fedgkd.federation.checks import largest_message

    kit.check_certificate()
    kit.plan.check_coordinator()  # what is wrong with the plan is said here, not in a job that nobody sees
    limits = _limits(largest_message(kit.plan))
    read_suspended(kit.path / SUSPENDED)  # damaged, it would let nobody in
    check_port_free(kit.plan.rules.port)
    with locked(kit.path, wait=False), _told_to_stop(), ExitStack() as stack:
        settle(kit)
        command = _flare("server", kit, f"org={COORDINATOR}")
        allowed = {ALLOWED: kit.plan.allowed} if kit.plan.allowed else {}
        flare = stack.enter_context(
            _process(command, {**_PATIENCE_WITH_SITES, **_GIVE_BACK, **allowed, **limits}, kit.path)
        )
        while flare.poll() is None:
            time.sleep(_WATCH)
        raise FederationError(f"the coordinator ended by itself (code {flare.returncode}); see {kit.path / 'log.txt'}")


def join(kit: Kit, training: Training) -> None:
    """A site, in the foreground until it is told to stop: the training process, and FLARE's client once that is up."""
    kit.check_certificate()
    name = kit.name
    with locked(kit.path, wait=False), _told_to_stop(), ExitStack() as stack:
        settle(kit)
        address = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedgkd-"))) / "worker"
        options = ["--kit", str(kit.path), "--socket", str(address), *training.arguments()]
        options += ["--allow-algorithm", kit.plan.allowed] if kit.plan.allowed else []
        trainer = stack.enter_context(_Trainer([sys.executable, "-m", TRAINER, *options], kit.path, address))
        command = _flare("client", kit, f"uid={name}", f"org={name.replace('-', '_')}")
        connection: subprocess.Popen[bytes] | None = None
        try:
            while not address.exists():
                trainer.look()
                time.sleep(_WATCH)
            # After all that can be wrong here: what is wrong with the plan or the graph is told without a coordinator.
            check_coordinator(kit)
            connection = stack.enter_context(_process(command, _at_site(address), kit.path))
            while connection.poll() is None:
                trainer.look()
                tidy(kit.path)
                time.sleep(_WATCH)
        except NoTrainer as reason:
            if reason.is_known or (connection is None and reason.is_unusable):
                raise
            print(f"{reason}; the coordinator is told", flush=True)
            connection = connection or stack.enter_context(_process(command, _at_site(address), kit.path))
            _tell(str(reason), address, connection)
            raise
        raise FederationError(
            "the coordinator does not take this site in, or the connection was lost for good; "
            f"see {kit.path / 'log.txt'}"
        )


def _tell(reason: str, address: Path, connection: subprocess.Popen[bytes]) -> None:
    """Answer the coordinator's questions, as long as some come, in the place of a training process that there is not.

    More than one: the first may be of a round that has ended meanwhile.
    """
    address.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        listener.settimeout(_WATCH)
        until, questions = time.monotonic() + _FAREWELL, 0
        while time.monotonic() < until and questions < _TRIES and connection.poll() is None:
            with suppress(TimeoutError, ConnectionError):
                asking, _ = listener.accept()
                with asking:
                    asking.settimeout(_PATIENCE)
                    receive(asking)
                    send(asking, FAILED + reason.encode())
                    questions += 1
        time.sleep(_SHORT)  # until the last answer is on the other side


def _limits(largest: int) -> dict[str, str]:
    """For the environment of FLARE's processes: what they must not take into memory."""
    return {LARGEST: str(largest), _FLARES_LARGEST: str(largest + ENVELOPE)}


def _at_site(address: Path) -> dict[str, str]:
    """The same at a site, where the training process has worked it out, unless there is none."""
    try:
        largest = int(largest_file(address).read_text(encoding="utf-8"))
    except FileNotFoundError:
        largest = ENVELOPE
    return {WORKER: str(address), **_limits(largest)}


def tidy(folder: Path) -> None:
    """Remove what FLARE leaves in a site's kit of jobs that are over: a folder each, named by the job's number."""
    jobs = [path for path in folder.iterdir() if _JOB.fullmatch(path.name)]
    for path in sorted(jobs, key=lambda path: path.stat().st_mtime)[:-_KEPT_JOBS]:
        shutil.rmtree(path, ignore_errors=True)


class NoTrainer(FederationError):
    """The training process cannot be kept running.

    Args:
        is_unusable: Whether it was given something unusable: at the start, who typed the command is all to be told.
        is_known: Whether the coordinator has heard of it in answers.
    """

    def __init__(self, message: str, *, is_unusable: bool = False, is_known: bool = False) -> None:
        super().__init__(message)
        self.is_unusable = is_unusable
        self.is_known = is_known


class _Trainer:
    """A site's training process, which is started again when it dies, but not for ever.

    Args:
        address: Where it answers; beside it, it notes when it has answered.
    """

    def __init__(self, command: Sequence[str], folder: Path, address: Path) -> None:
        self._command = command
        self._folder = folder
        self._address = address
        self._stack = ExitStack()
        self._deaths = 0
        self._start()

    def __enter__(self) -> _Trainer:
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()

    def look(self) -> None:
        """See to it that it is running.

        Raises:
            NoTrainer: If it has said that it cannot, or has died too often without an answer in between.
        """
        code = self._process.poll()
        if code is None:
            return
        self._errors.join(_PATIENCE)
        answered = answered_file(self._address)
        if code == CANNOT_START:
            raise NoTrainer(self._errors.last, is_unusable=True, is_known=answered.exists())
        self._deaths = 1 if answered.exists() else self._deaths + 1
        answered.unlink(missing_ok=True)
        reason = self._errors.last or how_it_ended(code)
        if self._deaths == _TRIES:
            raise NoTrainer(f"the training process died {_TRIES} times in a row: {reason}")
        print(f"the training process ended: {reason}; it is started again", flush=True)
        time.sleep(max(0.0, _SHORT - (time.monotonic() - self._started)))
        self._stack.close()
        self._start()

    def _start(self) -> None:
        self._started = time.monotonic()
        self._process = self._stack.enter_context(_process(self._command, {}, self._folder, subprocess.PIPE))
        self._errors = _Errors(self._process, self._folder / "errors.txt")
        self._errors.start()


def how_it_ended(code: int) -> str:
    """An exit code in words."""
    if code < 0:
        return f"it was killed (signal {-code}{', perhaps for want of memory' if -code == signal.SIGKILL else ''})"
    return f"it ended with code {code}"


class _Errors(threading.Thread):
    """Copies what a process says of its errors to a file, and knows the last line when the disk is full, too."""

    def __init__(self, process: subprocess.Popen[bytes], file: Path) -> None:
        super().__init__(daemon=True)
        self._stream = process.stderr
        self._file = file
        self.last = ""

    def run(self) -> None:
        assert self._stream is not None
        with self._stream as stream:
            for line in stream:
                self.last = line.decode(errors="replace").strip() or self.last
                with suppress(OSError), self._file.open("ab") as file:
                    file.write(line)


def _flare(side: str, kit: Kit, *settings: str) -> list[str]:
    module = f"nvflare.private.fed.app.{side}.{side}_train"
    fixed = ["secure_train=true", "config_folder=config", *settings]
    return [sys.executable, "-u", "-m", module, "-m", str(kit.path), "-s", f"fed_{side}.json", "--set", *fixed]


@contextmanager
def _process(
    command: Sequence[str], added: Mapping[str, str], folder: Path, errors: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, which ends with this block, and with us if we are killed."""
    with (folder / "errors.txt").open("ab") as file:
        process = subprocess.Popen(
            command,
            env={**environment(folder), **added},
            cwd=folder,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stderr=file if errors is None else errors,
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
