"""How well a relation matches the truth that only a simulation knows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def spearman(relation: NDArray[np.float64], divergence: NDArray[np.float64]) -> float:
    """Spearman correlation over client pairs of the relation with minus the divergence; NaN if either is constant."""
    pairs = np.triu_indices(len(relation), k=1)
    ours, truth = _ranks(relation[pairs]), _ranks(-divergence[pairs])
    if len(ours) < 2 or np.ptp(ours) == 0 or np.ptp(truth) == 0:
        return float("nan")
    return float(np.corrcoef(ours, truth)[0, 1])


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1; ties share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]
