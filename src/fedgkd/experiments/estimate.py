"""How long the runs of a grid will take, from finished ones like them or from a few measured rounds."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedgkd.experiments.directory import RunDirectory
from fedgkd.experiments.grid import Cell, State
from fedgkd.experiments.runner import Run
from fedgkd.experiments.workers import federation_of, reason

Place = tuple[Any, ...]

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
    """An estimate for every group of cells that are not finished, unless it can be neither measured nor guessed."""
    found = _from_finished(states)
    groups = {cell.group: cell for cell, state in states.items() if state is not State.FINISHED}
    began = time.perf_counter()
    for group, cell in _telling_first({group: cell for group, cell in groups.items() if group not in found}).items():
        if time.perf_counter() - began > PROBE_BUDGET:
            break
        on_probe(group)
        try:
            found[group] = probe(cell, data_dir)
        except Exception as error:  # noqa: BLE001  the run would fail by it, and the others would go on
            found[group] = Estimate(0.0, f"will fail: {reason(error)}")
    members = {cell.group: cell for cell in states}
    known = {_coordinates(members[group]): by.seconds for group, by in found.items() if by.seconds}
    guesses = {group: _guess(*_coordinates(cell), known) for group, cell in groups.items() if group not in found}
    return found | {group: Estimate(guess, "guessed from the others") for group, guess in guesses.items() if guess}


def _from_finished(states: Mapping[Cell, State]) -> dict[str, Estimate]:
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for cell, state in states.items():
        if state is State.FINISHED:
            seconds[cell.group].append(RunDirectory(cell.folder).checked_result()["seconds"])
    return {group: Estimate(sum(each) / len(each), f"mean of {len(each)} finished") for group, each in seconds.items()}


def _coordinates(cell: Cell) -> tuple[str, Place]:
    """What decides how long a run takes: the algorithm, and where it runs."""
    settings = cell.config.run
    return settings.algorithm, (settings.dataset, settings.graphs, settings.clients, settings.partition)


def _telling_first(groups: Mapping[str, Cell]) -> dict[str, Cell]:
    """Every algorithm somewhere and every place with some algorithm first: all others can be guessed from these."""
    seen: set[Any] = set()
    telling = {}
    for group, cell in groups.items():
        if not seen.issuperset(_coordinates(cell)):
            telling[group] = cell
            seen.update(_coordinates(cell))
    return {**telling, **groups}


def _guess(algorithm: str, place: Place, known: Mapping[tuple[str, Place], float]) -> float | None:
    """As much slower or faster than elsewhere as another algorithm is."""
    for (other, elsewhere), seconds in known.items():
        pair = (algorithm, elsewhere), (other, place)
        if other != algorithm and elsewhere != place and all(each in known for each in pair):
            return known[pair[0]] * known[pair[1]] / seconds
    return None


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
    return Estimate(started - began + each * (settings.rounds - 1), f"{PROBE_ROUNDS} measured rounds")


def total(states: Mapping[Cell, State], estimates: Mapping[str, Estimate], jobs: int) -> tuple[float, Sequence[Cell]]:
    """Seconds for all that is to do, and the cells that nothing is known of."""
    todo = [cell for cell, state in states.items() if state is not State.FINISHED]
    known = sum(estimates[cell.group].seconds for cell in todo if cell.group in estimates)
    return known / jobs, [cell for cell in todo if cell.group not in estimates]
