"""How long the runs of a grid will take, from finished ones like them or from a few measured rounds."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedgkd.errors import FedGKDError
from fedgkd.experiments.directory import RunDirectory
from fedgkd.experiments.grid import Cell, State
from fedgkd.experiments.runner import Run
from fedgkd.experiments.workers import federation_of

PROBE_ROUNDS = 3
PROBE_BUDGET = 60.0
"""Seconds after which no further run is probed."""


@dataclass(frozen=True)
class Estimate:
    """Seconds for one run, and what they are based on."""

    seconds: float
    basis: str


def estimate(
    states: Mapping[Cell, State], data_dir: Path | None, on_probe: Callable[[str], None] = lambda group: None
) -> dict[str, Estimate]:
    """An estimate for every group of cells that are not finished; none where it could not be measured in time."""
    finished: defaultdict[str, list[float]] = defaultdict(list)
    for cell, state in states.items():
        if state is State.FINISHED:
            finished[cell.group].append(RunDirectory(cell.folder).read_result()["seconds"])
    found = {
        group: Estimate(sum(seconds) / len(seconds), f"mean of {len(seconds)} finished")
        for group, seconds in finished.items()
    }
    began = time.perf_counter()
    for cell, state in states.items():
        if state is State.FINISHED or cell.group in found:
            continue
        if time.perf_counter() - began > PROBE_BUDGET:
            break
        on_probe(cell.group)
        try:
            found[cell.group] = probe(cell, data_dir)
        except FedGKDError as error:
            found[cell.group] = Estimate(0.0, f"will fail: {error}")
    return found


def probe(cell: Cell, data_dir: Path | None) -> Estimate:
    """Start the run without a folder and measure a few rounds; the first warms up and is not counted."""
    settings = cell.config.run
    run = Run(cell.config, federation_of(settings, data_dir), None)
    began = time.perf_counter()
    run.start()
    run.step()
    started = time.perf_counter()
    for _ in range(PROBE_ROUNDS):
        run.step()
    each = (time.perf_counter() - started) / PROBE_ROUNDS
    return Estimate(
        started - began + each * (settings.rounds - 1), f"{PROBE_ROUNDS} measured rounds, if all {settings.rounds} run"
    )


def total(states: Mapping[Cell, State], estimates: Mapping[str, Estimate], jobs: int) -> tuple[float, Sequence[Cell]]:
    """Seconds for all that is to do, and the cells that nothing is known of."""
    todo = [cell for cell, state in states.items() if state is not State.FINISHED]
    known = sum(estimates[cell.group].seconds for cell in todo if cell.group in estimates)
    return known / jobs, [cell for cell in todo if cell.group not in estimates]
