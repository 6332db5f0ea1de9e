"""Mutated inputs, what the program makes of them, and whether that is right.

A target is a kind of input: it makes a valid one, knows how such inputs go wrong, uses it as a user does, and judges
what was accepted by a reading of its own. Every input follows from (seed, target, number), so one line repeats it.
Inputs run in worker processes that are forked after the imports; a worker that hangs or dies costs that input only.

Verdicts: ``ok`` (accepted, rightly) and ``refused`` (one clear sentence) are good; the findings are ``TRACEBACK``,
``SILENT`` (accepted, wrongly), ``UNCLEAR`` (refused, but not by one sentence that names the file), ``VALID`` (a valid
input was refused) and ``HEAVY`` (more than 2 GB or 10 seconds).
"""

from __future__ import annotations

import faulthandler
import importlib
import io
import multiprocessing
import os
import random
import resource
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from fedgkd.errors import FedGKDError

SECONDS = 10
WALL_SECONDS = 120
"""For an input that waits instead of working; generous, since machines are shared."""
BYTES = 2 * 2**30
BATCH = 100
LONGEST_MESSAGE = 600
GOOD = ("ok", "refused")

_PRELOADED = ("fedgkd.cli.verbs", "fedgkd.data.own", "fedgkd.experiments.model_file", "fedgkd.experiments.runner")
"""What commands import when they run, once for all workers."""

Mutator = Callable[[random.Random, Any], Any]
"""Takes the content of an input and returns it changed, in place or not; None means: changed in place."""


class Target(ABC):
    """One kind of input.

    Attributes:
        name: What to call it on the command line.
        mutators: Ways in which the content goes wrong.
        damage: Whether the files' bytes are damaged too.
        names_file: Whether a refusal must say where the input is.
    """

    name: ClassVar[str]
    mutators: ClassVar[Sequence[Mutator]]
    damage: ClassVar[bool] = True
    names_file: ClassVar[bool] = True

    @abstractmethod
    def make(self, draw: random.Random) -> Any:
        """A valid content, small."""

    @abstractmethod
    def write(self, content: Any, folder: Path) -> Any:
        """Write it into an empty folder; returns what :meth:`use` takes, a path as a rule."""

    @abstractmethod
    def use(self, given: Any) -> Any:
        """What the user does; raises what the program raises."""

    @abstractmethod
    def wrong(self, given: Any, content: Any, result: Any) -> str | None:
        """Why the program should not have accepted that, or read it so; None if it is right.

        Files that were damaged after ``content`` was written are to be judged by reading them again.
        """


class Case(NamedTuple):
    target: str
    number: int


@dataclass(frozen=True)
class Outcome:
    case: Case
    verdict: str
    detail: str = ""
    changes: tuple[str, ...] = ()


class Refused(FedGKDError):
    """What the command line printed as its error."""


def command(*arguments: str) -> str:
    """``fedgkd`` with these arguments, in this process; what it printed.

    Raises:
        Refused: If it ended with an error sentence and code 2.
    """
    from fedgkd.cli import app

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = app(list(arguments), standalone_mode=False)
        except SystemExit as end:
            code = end.code
        except Exception as error:
            if hasattr(error, "format_message"):  # click's own errors: an option that is not there, a value of no type
                raise Refused(error.format_message()) from error
            raise
    printed, said = (stream.buffer.getvalue().decode() for stream in (out, err))
    if code:
        message = said.rpartition("error: ")[2].rstrip("\n")
        if code == 2 and message:
            refusal = Refused()
            refusal.args = (message,)  # as it was printed, with all its lines
            raise refusal
        raise AssertionError(f"exit code {code}: {said}")
    return printed


def build(target: Target, seed: int, number: int, folder: Path) -> tuple[Any, Any, list[str]]:
    """Input ``number``: its content, what to use, and what was changed; number 0 is valid."""
    draw = random.Random(f"{seed}/{target.name}/{number}")
    content = target.make(draw)
    changes: list[str] = []
    damage = target.damage and number > 0 and draw.random() < 0.3
    if number > 0:
        at_least = 0 if damage else 1
        for mutate in draw.choices(target.mutators, k=draw.choice([at_least, 1, 1, 1, 2, 3])):
            changed = mutate(draw, content)
            content = content if changed is None else changed
            changes.append(getattr(mutate, "__name__", str(mutate)))
    given = target.write(content, folder)
    if damage:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        if files:
            chosen = draw.choice(files)
            chosen.write_bytes(damaged(draw, chosen.read_bytes()))
            changes.append(f"damaged {chosen.relative_to(folder)}"[:80])
    return content, given, changes


def damaged(draw: random.Random, data: bytes) -> bytes:
    """Some bytes flipped, cut off, doubled, left out or put in."""
    if not data:
        return draw.randbytes(draw.randrange(1, 40))
    start = draw.randrange(len(data))
    end = min(len(data), start + draw.choice([1, 1, 2, 8, 64, 1000]))
    kind = draw.randrange(7)
    if kind == 0:
        return data[:start]
    if kind == 1:
        return data[:start] + bytes([data[start] ^ 1 << draw.randrange(8)]) + data[start + 1 :]
    if kind == 2:
        return data[:start] + draw.randbytes(end - start) + data[end:]
    if kind == 3:
        return data[:end] + data[start:]
    if kind == 4:
        return data[:start] + data[end:]
    if kind == 5:
        return data[:start] + draw.choice([b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n", b'"', b","]) + data[start:]
    return data + draw.choice([data, b"\0", draw.randbytes(30)])


def judge(target: Target, seed: int, number: int) -> Outcome:
    """Build one input, use it and judge; in this process."""
    case = Case(target.name, number)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as temporary:
        folder = Path(temporary) / "in"
        folder.mkdir()
        content, given, changes = build(target, seed, number, folder)
        began = time.process_time()
        _forget_peak()
        verdict, detail = _use(target, content, given, folder.parent)
        if time.process_time() - began > SECONDS:
            verdict, detail = "HEAVY", f"{time.process_time() - began:.0f} s"
        if _peak() > BYTES:
            verdict, detail = "HEAVY", f"{_peak() / 2**30:.1f} GB"
    if number == 0 and verdict == "refused":
        verdict = "VALID"
    return Outcome(case, verdict, detail, tuple(changes))


def _use(target: Target, content: Any, given: Any, folder: Path) -> tuple[str, str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = target.use(given)
    except FedGKDError as error:
        if _no_memory(error):
            return "HEAVY", f"out of memory: {error}"
        problem = unclear(str(error), folder if target.names_file else None)
        return ("UNCLEAR", f"{problem}: {error}") if problem else ("refused", str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001  whatever comes is what we look for
        if _no_memory(error):
            return "HEAVY", f"out of memory: {error}"
        return "TRACEBACK", f"{_where(error)}: {type(error).__name__}: {str(error)[:200]}"
    problem = target.wrong(given, content, result)
    return ("SILENT", problem) if problem else ("ok", "")


def unclear(message: str, folder: Path | None) -> str | None:
    """What is not right with an error sentence."""
    if folder is not None and str(folder) not in message:
        return "does not name the file"
    if not message.isprintable():
        return "more than one printable line"
    if len(message.replace(str(folder), "")) > LONGEST_MESSAGE:
        return "longer than a sentence"
    return None


def _no_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError) or "allocate memory" in str(error) or "bad_alloc" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _where(error: BaseException) -> str:
    """The innermost line of the program itself, and the innermost of all."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/fedgkd/" in frame.filename] or frames
    places = [ours[-1]] if ours[-1] is frames[-1] else [ours[-1], frames[-1]]
    return " > ".join(f"{Path(place.filename).name}:{place.lineno}" for place in places)


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """Bytes of memory at most, since the peak was forgotten."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def run(targets: Sequence[Target], cases: Sequence[Case], seed: int, jobs: int = 1) -> Iterator[Outcome]:
    """Judge the cases, in worker processes, in whatever order they finish."""
    for module in _PRELOADED:
        importlib.import_module(module)
    by_name = {target.name: target for target in targets}
    todo = deque([list(cases[i : i + BATCH]) for i in range(0, len(cases), BATCH)])
    workers: dict[Connection, _Worker] = {}
    try:
        while todo or workers:
            while todo and len(workers) < jobs:
                worker = _Worker(by_name, todo.popleft(), seed)
                workers[worker.answers] = worker
            ready = wait(list(workers), timeout=1)
            for answers, worker in list(workers.items()):
                outcome = worker.next_outcome(answers in ready)
                if outcome is not None:
                    yield outcome
                if worker.ended:
                    del workers[answers]
                    worker.close()
                    if worker.cases:
                        todo.appendleft(worker.cases)
    finally:
        for worker in workers.values():
            worker.close()


class _Worker:
    """A forked process that judges a list of cases, one after the other."""

    def __init__(self, targets: dict[str, Target], cases: list[Case], seed: int) -> None:
        self.cases = cases
        self.ended = not cases
        self.answers, ours = multiprocessing.Pipe(duplex=False)
        self._since = time.monotonic()
        self._process = multiprocessing.get_context("fork").Process(
            target=_work, args=(targets, list(cases), seed, ours), daemon=True
        )
        self._process.start()
        ours.close()

    def next_outcome(self, ready: bool) -> Outcome | None:
        """What the worker has to say; its end, and time that is up, are blamed on the case it was busy with."""
        if ready:
            try:
                outcome: Outcome = self.answers.recv()
            except EOFError:
                return self._blame()
            self.cases.pop(0)
            self._since = time.monotonic()
            self.ended = not self.cases
            return outcome
        if time.monotonic() - self._since > WALL_SECONDS:
            self._process.kill()
            return self._blame()
        return None

    def _blame(self) -> Outcome:
        self._process.join()
        self.ended = True
        case, code = self.cases.pop(0), self._process.exitcode
        if code == -signal.SIGPROF:
            return Outcome(case, "HEAVY", f"more than {SECONDS} s of processor time")
        if code == -signal.SIGKILL:
            return Outcome(case, "HEAVY", f"no answer in {WALL_SECONDS} s, or killed for its memory")
        return Outcome(case, "TRACEBACK", f"the process died (exit code {code})")

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self.answers.close()


def _work(targets: dict[str, Target], cases: Sequence[Case], seed: int, answers: Connection) -> None:
    faulthandler.disable()  # deaths are expected
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, whatever it computes
    with _quiet():
        _limit_memory()
        for case in cases:
            signal.setitimer(signal.ITIMER_PROF, 2 * SECONDS)
            try:
                outcome = judge(targets[case.target], seed, case.number)
            except Exception as error:  # noqa: BLE001  a fault of the target itself, to be shown like any other
                outcome = Outcome(case, "BROKEN", f"{traceback.extract_tb(error.__traceback__)[-1]}: {error!r}")
            answers.send(outcome)
    os._exit(0)


@contextmanager
def _quiet() -> Iterator[None]:
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        yield


def _limit_memory() -> None:
    """What is there already, and as much again as an input may take."""
    here = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (here + BYTES, resource.RLIM_INFINITY))


def fresh(folder: Path) -> Path:
    """The folder, empty."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
