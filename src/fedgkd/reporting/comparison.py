"""Runs sorted into what can be compared: a cell holds the methods that saw the same clients.

A cell is a dataset, a setting, a number of clients, and the model that is scored. Seeds of one method in one cell are
averaged, so its other settings must agree: runs that differ in them become variants, each under its own name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedgkd.data.federation import DATA_SETTINGS
from fedgkd.data.paper import PAPER_CLIENTS
from fedgkd.data.paper_results import PaperScore, paper_score
from fedgkd.reporting.methods import (
    ORACLES,
    Style,
    clients_title,
    dataset_position,
    dataset_title,
    method_position,
    method_title,
    styles,
)
from fedgkd.reporting.records import FinishedRun

Array = NDArray[np.float64]
T = TypeVar("T")

_NOT_OF_A_METHOD = {
    *DATA_SETTINGS,
    "clients",
    "partition",
    "algorithm",
    "seed",
    "device",
    "threads",
    "checkpoint_every",
    "checkpoint_share",
}
_PAPER_RATIOS = (0.30, 0.35, 0.35)


@dataclass(frozen=True)
class Method:
    """An algorithm, and what tells it from its other variants in the cell, as ``tau=0.5``."""

    algorithm: str
    variant: str
    style: Style

    @property
    def title(self) -> str:
        return f"{method_title(self.algorithm)} ({self.variant})" if self.variant else method_title(self.algorithm)

    @property
    def key(self) -> str:
        return slug(f"{self.algorithm} {self.variant}")

    @property
    def ranked(self) -> bool:
        """Not so if it sees the graphs of all clients: that is a ceiling, not a rival."""
        return self.algorithm not in ORACLES


@dataclass(frozen=True)
class Entry:
    """A method in a cell, with a run per seed."""

    method: Method
    runs: tuple[FinishedRun, ...]

    def values(self, figure: str) -> Array:
        """A figure of ``result.json``, one per seed; NaN where a run has none."""
        return np.array([run.result[figure] for run in self.runs], dtype=np.float64)

    def mean(self, figure: str = "test_accuracy") -> float:
        return float(self.values(figure).mean())

    def std(self, figure: str = "test_accuracy") -> float:
        """Sample standard deviation over seeds; NaN for a single one."""
        return float(self.values(figure).std(ddof=1)) if len(self.runs) > 1 else float("nan")


@dataclass(frozen=True)
class Cell:
    """One federation protocol and all methods that ran on it, in the order of the paper's tables."""

    dataset: str
    setting: str
    clients: int
    scored_model: str
    data: str
    entries: tuple[Entry, ...]

    @property
    def dataset_title(self) -> str:
        """With what tells it from data of the same name, as ``synthetic=homophily=0.5``."""
        return f"{dataset_title(self.dataset)} ({self.data})" if self.data else dataset_title(self.dataset)

    @property
    def title(self) -> str:
        return f"{self.dataset_title}, {self.setting}, {clients_title(self.clients)}"

    @property
    def key(self) -> str:
        scored = "" if self.scored_model == "just-trained" else self.scored_model
        return slug(f"{self.dataset} {self.setting} {self.clients} {self.data} {scored}")

    @property
    def rivals(self) -> list[Entry]:
        """The methods that are ranked against each other."""
        return [entry for entry in self.entries if entry.method.ranked]

    def rank(self, entry: Entry) -> int | None:
        """1 for the best mean test accuracy; equal means share a rank, and a method without one comes last.

        None if nobody has one, and for methods that are not ranked.
        """
        if not entry.method.ranked or all(math.isnan(other.mean()) for other in self.rivals):
            return None
        return 1 + sum(_score(other) > _score(entry) for other in self.rivals)

    def best(self) -> Entry | None:
        return max(self.rivals, key=_score, default=None)

    def paper(self, entry: Entry) -> PaperScore | None:
        """The paper's figure, if the runs followed its protocol on its data."""
        settings = entry.runs[0].settings
        ratios = tuple(settings.get(f"{split}_ratio") for split in ("train", "val", "test"))
        own_data = settings.get("dataset") != self.dataset or settings.get("graphs") is not None
        if own_data or ratios != _PAPER_RATIOS:
            return None
        return paper_score(entry.method.algorithm, self.dataset, self.setting, self.clients)


@dataclass(frozen=True)
class Comparison:
    """All cells, in the order of the paper's tables, and what a reader should know about them."""

    cells: tuple[Cell, ...]
    warnings: tuple[str, ...]

    @property
    def methods(self) -> list[Method]:
        """Every method once."""
        found = {method.key: method for cell in self.cells for method in (entry.method for entry in cell.entries)}
        return sorted(found.values(), key=lambda method: (*method_position(method.algorithm), method.variant))


def compare_runs(runs: Sequence[FinishedRun]) -> Comparison:
    """Sort runs into cells and methods."""
    warnings: list[str] = []
    sorted_runs: list[tuple[tuple[Any, ...], str, dict[tuple[str, str], list[FinishedRun]]]] = []
    for place, in_place in group(runs, _place).items():
        for data, in_cell in group(in_place, _naming(in_place, _data_settings)).items():
            sorted_runs.append((place, data, dict(_methods(in_cell))))
    chosen = styles({key for *_, methods in sorted_runs for key in methods})
    cells = []
    for (dataset, setting, clients, scored), data, methods in sorted_runs:
        entries = tuple(
            Entry(Method(*key, chosen[key]), _one_per_seed(methods[key], warnings))
            for key in sorted(methods, key=lambda key: (*method_position(key[0]), key[1]))
        )
        cell = Cell(dataset, setting, clients, scored, data, entries)
        warnings.extend(_unequal(cell))
        cells.append(cell)
    return Comparison(_in_order(cells), tuple(warnings))


def with_gaps(comparison: Comparison) -> Comparison:
    """The same with an empty cell for every number of clients that the paper has of these datasets and is not here."""
    rows = group(comparison.cells, lambda cell: (cell.dataset, cell.setting, cell.data, cell.scored_model))
    gaps = [
        replace(cells[0], clients=clients, entries=())
        for (dataset, setting, *_), cells in rows.items()
        for clients in set(PAPER_CLIENTS.get(setting, ())) - {cell.clients for cell in cells}
        if paper_score("fedgkd", dataset, setting, clients)
    ]
    return replace(comparison, cells=_in_order([*comparison.cells, *gaps]))


def _in_order(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    def place(cell: Cell) -> tuple[Any, ...]:
        return cell.setting, *dataset_position(cell.dataset), cell.clients, cell.data, cell.scored_model

    return tuple(sorted(cells, key=place))


def group(items: Iterable[T], key: Callable[[T], Hashable]) -> dict[Any, list[T]]:
    groups: dict[Any, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def slug(text: str) -> str:
    """For file names and anchors."""
    return re.sub(r"[^\w.]+", "-", text.lower()).strip("-")


def _score(entry: Entry) -> float:
    return float(np.nan_to_num(entry.mean(), nan=-1.0))


def _place(run: FinishedRun) -> tuple[Any, ...]:
    return tuple(run.result[name] for name in ("dataset", "setting", "clients", "scored_model"))


def _methods(runs: Sequence[FinishedRun]) -> Iterator[tuple[tuple[str, str], list[FinishedRun]]]:
    for algorithm, of_algorithm in group(runs, lambda run: run.result["algorithm"]).items():
        for variant, same in group(of_algorithm, _naming(of_algorithm, _method_settings)).items():
            yield (str(algorithm), variant), same


def _data_settings(run: FinishedRun) -> dict[str, Any]:
    unused = {"graphs"} if run.settings.get("graphs") is None else {"dataset", "synthetic"}
    return {name: run.settings[name] for name in DATA_SETTINGS if name in run.settings and name not in unused}


def _method_settings(run: FinishedRun) -> dict[str, Any]:
    return {name: value for name, value in run.settings.items() if name not in _NOT_OF_A_METHOD}


def _naming(
    runs: Sequence[FinishedRun], settings_of: Callable[[FinishedRun], Mapping[str, Any]]
) -> Callable[[FinishedRun], str]:
    """Names a run by those settings in which the runs differ; all get the empty name if they agree."""
    values: dict[str, set[str]] = {}
    for run in runs:
        for name, value in settings_of(run).items():
            values.setdefault(name, set()).add(str(value))
    different = [name for name, found in values.items() if len(found) > 1]
    return lambda run: ", ".join(f"{name}={settings_of(run)[name]}" for name in different if name in settings_of(run))


def _one_per_seed(runs: Sequence[FinishedRun], warnings: list[str]) -> tuple[FinishedRun, ...]:
    by_seed = group(runs, lambda run: run.result["seed"])
    for first, *others in by_seed.values():
        if others:
            names = ", ".join(run.name for run in others)
            warnings.append(f"{first.name} was run more than once with the same settings; not counted: {names}.")
    return tuple(by_seed[seed][0] for seed in sorted(by_seed))


def _unequal(cell: Cell) -> Iterator[str]:
    """What makes the methods of a cell less than comparable."""
    runs = [run for entry in cell.entries for run in entry.runs]
    for seed, same_seed in group(runs, lambda run: run.result["seed"]).items():
        if len({run.result["partition_hash"] for run in same_seed}) > 1:
            yield f"{cell.title}: the runs of seed {seed} do not share the same clients; they are not paired."
    for name in ("rounds", "patience"):
        budgets = sorted({run.settings[name] for run in runs if name in run.settings})
        if len(budgets) > 1:
            yield f"{cell.title}: the methods were given different {name}: {', '.join(map(str, budgets))}."
    if len({tuple(run.result["seed"] for run in entry.runs) for entry in cell.entries}) > 1:
        yield f"{cell.title}: not all methods were run with the same seeds."
