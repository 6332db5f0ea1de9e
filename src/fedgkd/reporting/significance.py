"""Whether the best method of a cell is better than the others by more than chance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedgkd.reporting.comparison import Cell, Entry

Array = NDArray[np.float64]

LEVEL = 0.05


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
    """The two-sided p-value; 1 if there is no difference at all."""
    from scipy import stats

    # Equal accuracies may differ in the last bit, which must not count as a difference.
    differences = np.where(np.abs(differences) < 1e-9, 0.0, differences)
    return float(stats.wilcoxon(differences).pvalue) if differences.any() else 1.0


def holm(p_values: list[float]) -> list[float]:
    """Holm's step-down correction, in the order given."""
    order = np.argsort(p_values, kind="stable")
    corrected = np.empty(len(p_values))
    worst = 0.0
    for step, index in enumerate(order):
        worst = max(worst, min(1.0, (len(p_values) - step) * p_values[index]))
        corrected[index] = worst
    return corrected.tolist()
