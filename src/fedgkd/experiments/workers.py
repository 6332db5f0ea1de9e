"""The runs of a grid, one after the other or in several processes; what fails is written down and the rest goes on."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fedgkd.atomic import atomic_write_text, make_folder
from fedgkd.data.federation import Federation
from fedgkd.errors import FedGKDError, RunError
from fedgkd.experiments.config import RunSettings
from fedgkd.experiments.directory import RunDirectory
from fedgkd.experiments.federations import build_federation, federation_settings
from fedgkd.experiments.grid import FAILED_FILE, Cell
from fedgkd.experiments.locks import removed
from fedgkd.experiments.records import Record
from fedgkd.experiments.runner import Events, resume
from fedgkd.experiments.tracking import open_tracker
from fedgkd.parsing import read_json

STARTED, ROUND, WARNING, FINISHED, FAILED = "started", "round", "warning", "finished", "failed"


@dataclass(frozen=True)
class News:
    """What a run of a grid tells.

    ``value`` is a round's record, the sentence of a warning or failure, or the result of a finished run.
    """

    cell: Cell
    event: str
    value: Any = None


@dataclass(frozen=True)
class Surroundings:
    """What a worker needs besides a cell: where published data lies, and where rounds are logged to."""

    data_dir: Path | None = None
    log: str | None = None


Report = Callable[[News], None]


def run_cells(cells: Sequence[Cell], surroundings: Surroundings, jobs: int, report: Report) -> None:
    """Bring every cell to its end: finished, or failed with the reason in its folder."""
    for folder in {cell.folder.parent for cell in cells}:
        make_folder(folder)
    if jobs > 1:
        _run_side_by_side(cells, surroundings, jobs, report)
    else:
        for cell in cells:
            attempt(cell, surroundings, report)


def attempt(cell: Cell, surroundings: Surroundings, report: Report) -> None:
    """Run a cell, from its checkpoint if it has one; a failure is written to its folder."""
    report(News(cell, STARTED))
    try:
        result = _bring_to_end(cell, surroundings, report)
    except Exception as error:  # noqa: BLE001  whatever is wrong with one run must not end the others
        details = {} if isinstance(error, FedGKDError) else {"traceback": traceback.format_exc()}
        record_failure(cell, reason(error), **details)
        report(News(cell, FAILED, reason(error)))
    else:
        report(News(cell, FINISHED, result))


def reason(error: Exception) -> str:
    """Why a run failed: the sentence of an error of ours, or what kind of error an algorithm of the user's own has."""
    return str(error) if isinstance(error, FedGKDError) else f"{type(error).__name__}: {error}"


def record_failure(cell: Cell, sentence: str, **details: str) -> None:
    text = json.dumps({"error": sentence, **details}, indent=2) + "\n"
    if cell.folder.parent.is_dir():  # else the whole grid was removed, and is not to be made again
        cell.folder.mkdir(exist_ok=True)
        atomic_write_text(cell.folder / FAILED_FILE, text, RunError, make_parents=False)


def read_failure(cell: Cell) -> str:
    """Why a cell has no result."""
    file, remedy = cell.folder / FAILED_FILE, "the same command tries the run again"
    if not file.exists():
        return "it is not finished"
    sentence = read_json(file, RunError, remedy, " cannot be read: it").get("error")
    if not isinstance(sentence, str):
        raise RunError(f"{file} cannot be read (it does not say why the run failed); {remedy}")
    return sentence


def federation_of(settings: RunSettings, data_dir: Path | None) -> Federation:
    """The federation of a run; the last one is kept, since the next cell often has the same."""
    return _federation(federation_settings(settings), data_dir)


_federation = lru_cache(maxsize=1)(build_federation)


def _bring_to_end(cell: Cell, surroundings: Surroundings, report: Report) -> Record:
    if not cell.folder.parent.is_dir():
        raise removed(cell.folder.parent)
    directory = RunDirectory(cell.folder)
    with directory.held():
        return _bring_held_to_end(cell, directory, surroundings, report)


def _bring_held_to_end(cell: Cell, directory: RunDirectory, surroundings: Surroundings, report: Report) -> Record:
    if directory.is_finished:  # by another process, after this grid looked
        return directory.checked_result()
    (cell.folder / FAILED_FILE).unlink(missing_ok=True)
    if not directory.metrics_file.exists():  # nothing is done yet, so nothing holds it to earlier settings
        atomic_write_text(directory.config_file, cell.config.to_toml(), RunError)
    federation = federation_of(cell.config.run, surroundings.data_dir)
    events = Events(
        on_round=lambda record: report(News(cell, ROUND, record)),
        on_warning=lambda sentence: report(News(cell, WARNING, sentence)),
    )
    with open_tracker(surroundings.log, cell.folder, cell.config) as tracker:
        result = resume(directory, federation, tracker.added_to(events)).execute()
        tracker.on_result(result)
    return result


# --- several processes -------------------------------------------------------------------------------------------


class _Worker:
    """A process of its own that runs the cells that it is sent, one at a time."""

    def __init__(self, surroundings: Surroundings) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, surroundings), daemon=True)
        self.process.start()
        theirs.close()

    def send(self, cell: Cell) -> None:
        with suppress(OSError):  # it is dead, which is noticed when its answer does not come
            self.connection.send(cell)

    def end(self) -> None:
        """At once: a run loses nothing that its checkpoints do not have."""
        self.process.kill()
        self.process.join()
        self.connection.close()


def _run_side_by_side(cells: Sequence[Cell], surroundings: Surroundings, jobs: int, report: Report) -> None:
    waiting = deque(cells)
    idle: list[_Worker] = []
    busy: dict[_Worker, Cell] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < jobs:
                worker = idle.pop() if idle else _Worker(surroundings)
                busy[worker] = waiting.popleft()
                worker.send(busy[worker])
            heard = wait([worker.connection for worker in busy])
            for worker in [worker for worker in busy if worker.connection in heard]:
                news = _receive(worker, busy[worker])
                if news.event in (FINISHED, FAILED):
                    del busy[worker]
                    if worker.process.is_alive():
                        idle.append(worker)
                report(news)
    finally:
        for worker in (*idle, *busy):
            worker.end()


def _receive(worker: _Worker, cell: Cell) -> News:
    try:
        event, value = worker.connection.recv()
    except (EOFError, OSError):
        worker.end()
        sentence = _cause_of_death(worker.process.exitcode)
        record_failure(cell, sentence)
        return News(cell, FAILED, sentence)
    return News(cell, event, value)


def _cause_of_death(exitcode: int | None) -> str:
    if exitcode == -signal.SIGKILL:
        return "the process was killed, perhaps because memory ran out; try fewer --jobs"
    return f"the process ended unexpectedly with code {exitcode}"


def _serve(connection: Connection, surroundings: Surroundings) -> None:
    # Ctrl-C reaches every process of a terminal; the parent decides what becomes of its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def report(news: News) -> None:
        try:
            connection.send((news.event, news.value))
        except OSError:
            os._exit(1)  # nobody listens any more; this is no failure of the run

    with suppress(EOFError):  # the parent has nothing more to do
        while True:
            attempt(connection.recv(), surroundings, report)


def _end_with_parent() -> None:
    """A worker whose parent is gone must not go on writing: a restarted grid takes up the same folders."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
