"""How well a relation matches the truth that only a simulation knows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def spearman(relation: NDArray[np.float64], divergence: NDArray[np.float64]) -> float:
    """Spearman correlation over client pairs of the relation with minus the divergence; NaN if either is constant."""
    pairs = np.triu_indices(len(relation), k=1)
    ours, truth = _ranks(relation[pairs]), _ranks(-divergence[pairs])
    if len(ours) < 2 or np.ptp(ours) == 0 or np.ptp(truth) == 0:
        return float("nan")
    return float(np.corrcoef(ours, truth)[0, 1])


def auc(relation: NDArray[np.float64], groups: Sequence[str]) -> float:
    """Chance that a pair of one group is related more closely than a pair of two; ties count half.

    NaN if all pairs are of one kind.
    """
    pairs = np.triu_indices(len(relation), k=1)
    names = np.asarray(groups)
    alike = names[pairs[0]] == names[pairs[1]]
    same, other = int(alike.sum()), int((~alike).sum())
    if not same or not other:
        return float("nan")
    above = _ranks(relation[pairs])[alike].sum() - same * (same + 1) / 2
    return float(above / (same * other))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1; ties share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]
