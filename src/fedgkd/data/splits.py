"""Train, validation and test nodes: one random permutation of the whole graph, before it is partitioned."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from fedgkd.data.graph import UNLABELLED, Graph, Masks
from fedgkd.errors import SettingError
from fedgkd.randomness import stream

Ratios = tuple[float, float, float]
DEFAULT_RATIOS: Ratios = (0.30, 0.35, 0.35)


def random_split(graph: Graph, seed: int, ratios: Ratios = DEFAULT_RATIOS) -> Graph:
    """The graph with train, validation and test masks over its labelled nodes.

    Masks that the graph already has are kept. Ratios that sum to less than 1 leave nodes out of all three.

    Raises:
        SettingError: If the seed is negative, a ratio is not positive, or the ratios sum to more than 1.
    """
    _check(seed, ratios)
    if graph.masks is not None:
        return graph
    labelled = np.flatnonzero(graph.y != UNLABELLED)
    shuffled = stream(seed, "split").permutation(labelled)
    bounds = [0, *np.rint(np.cumsum(ratios) * len(shuffled)).astype(int)]
    train, val, test = (np.zeros(graph.num_nodes, dtype=np.bool_) for _ in ratios)
    masks: Masks = (train, val, test)
    for mask, (start, end) in zip(masks, pairwise(bounds), strict=True):
        mask[shuffled[start:end]] = True
    return graph.with_masks(masks)


def _check(seed: int, ratios: Ratios) -> None:
    if seed < 0:
        raise SettingError(f"seed {seed} is not usable: it must be 0 or larger")
    # Written as "not >" so that NaN is refused too; the slack is for sums such as 0.7 + 0.2 + 0.1.
    if not all(ratio > 0 for ratio in ratios) or not sum(ratios) <= 1 + 1e-9:
        shown = "/".join(f"{ratio:g}" for ratio in ratios)
        raise SettingError(f"split ratios {shown} are not usable: each must be above 0 and their sum at most 1")
