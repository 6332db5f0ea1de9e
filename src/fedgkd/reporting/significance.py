"""Whether the best method of a cell is better than the others by more than chance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedgkd.reporting.comparison import Cell, Entry

Array = NDArray[np.float64]

LEVEL = 0.05

_MOST_EXACT = 300
"""Pairs; with more, the normal approximation is as good and the exact distribution slow."""


@dataclass(frozen=True)
class PairedTest:
    """A two-sided Wilcoxon signed-rank test; ``p`` is corrected for the number of tests in the cell (Holm)."""

    against: Entry
    pairs: int
    p: float

    @property
    def significant(self) -> bool:
        return self.p < LEVEL


def against_best(cell: Cell) -> dict[str, PairedTest]:
    """Every other method against the best one, by the method's key; those that share no client with it are left out."""
    best = cell.best()
    if best is None:
        return {}
    differences = {entry.method.key: paired_differences(best, entry) for entry in cell.rivals if entry is not best}
    testable = {key: values for key, values in differences.items() if len(values)}
    corrected = holm([wilcoxon(values) for values in testable.values()])
    return {key: PairedTest(best, len(values), p) for (key, values), p in zip(testable.items(), corrected, strict=True)}


def paired_differences(first: Entry, second: Entry) -> Array:
    """Test accuracy of the one minus the other, for every client of every seed that both have."""
    others = {run.result["seed"]: run.result for run in second.runs}
    pairs = [
        (ours, theirs)
        for run in first.runs
        if (other := others.get(run.result["seed"])) and other["partition_hash"] == run.result["partition_hash"]
        for ours, theirs in zip(run.result["per_client"], other["per_client"], strict=True)
        if ours is not None and theirs is not None
    ]
    return np.array([ours - theirs for ours, theirs in pairs], dtype=np.float64)


def wilcoxon(differences: Array) -> float:
    """The two-sided p-value, pairs without a difference left out; exact, with ties and all, up to many pairs."""
    from scipy import stats

    # Equal accuracies, and equal differences of them, may differ in the last bit.
    rounded = np.round(differences, 9)
    rounded = rounded[rounded != 0]
    if len(rounded) > _MOST_EXACT:
        return float(stats.wilcoxon(rounded).pvalue)
    # Tied values share a mean rank, so twice a rank is a whole number.
    ranks = np.rint(2 * stats.rankdata(np.abs(rounded))).astype(int)
    chances = np.ones(1)  # of every rank sum of the positive differences, if each sign is the toss of a coin
    for rank in ranks.tolist():
        chances = (np.pad(chances, (rank, 0)) + np.pad(chances, (0, rank))) / 2
    found = int(ranks[rounded > 0].sum())
    return min(1.0, 2 * float(min(chances[: found + 1].sum(), chances[found:].sum())))


def holm(p_values: list[float]) -> list[float]:
    """Holm's step-down correction, in the order given."""
    order = np.argsort(p_values, kind="stable")
    corrected = np.empty(len(p_values))
    worst = 0.0
    for step, index in enumerate(order):
        worst = max(worst, min(1.0, (len(p_values) - step) * p_values[index]))
        corrected[index] = worst
    return corrected.tolist()
