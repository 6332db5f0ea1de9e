"""Clusters of clients that split in two when their updates no longer agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedgkd.clients import Tensors

SMALLEST_SPLIT = 3
"""A cluster of fewer clients stays as it is."""


@dataclass(frozen=True)
class Splitting:
    """The clusters after a round.

    Args:
        labels: The cluster of every client of the federation, numbered from 0.
        divided: Rows of the uploads whose cluster was split.
        facts: Clusters, norms and splits, for the record.
    """

    labels: Tensor
    divided: list[int]
    facts: dict[str, Any]


def update_products(uploads: Tensors, downloads: Tensors, names: Sequence[str]) -> Tensor:
    """Inner products of the clients' updates (upload less download): ``(clients, clients)`` float64.

    All that clustering asks of the updates is in them: norms, cosines, and the norm of any mean.
    """
    updates = ((uploads[name] - downloads[name]).flatten(1) for name in names)
    return torch.stack([(update @ update.T).double().cpu() for update in updates]).sum(0)


def update_cosines(products: Tensor) -> Tensor:
    """Cosines of the updates from their inner products; one that is zero relates to nobody."""
    norms = products.diagonal().sqrt().clamp(min=torch.finfo(products.dtype).tiny)
    return (products / norms / norms[:, None]).fill_diagonal_(1.0).clamp(-1.0, 1.0)


def update_norms(products: Tensor, rows: Sequence[int]) -> tuple[float, float]:
    """Norm of the mean update of some clients, and the largest norm among them."""
    own = products[rows][:, rows]
    return float(own.mean().clamp(min=0.0).sqrt()), float(own.diagonal().max().sqrt())


def split_clusters(
    labels: Tensor,
    cohort: Sequence[int],
    products: Tensor,
    similarity: Callable[[Sequence[int]], Tensor],
    ready: Tensor,
    eps_1: float,
    eps_2: float,
) -> Splitting:
    """Split every cluster whose mean update has all but vanished while some client still moves.

    A cluster is judged by its members that took part; of those that did not, none changes its cluster.

    Args:
        labels: The cluster of every client of the federation.
        cohort: The clients behind the rows of everything else.
        products: Inner products of the updates.
        similarity: From rows to their pairwise similarities, none negative.
        ready: Which rows may be split; a cluster waits for all of its members.
        eps_1: The norm of the mean update must be below.
        eps_2: The largest norm must be above.
    """
    before, after = labels[list(cohort)], labels.clone()
    means: list[float | None] = []
    largest: list[float | None] = []
    splits: list[dict[str, Any]] = []
    divided: list[int] = []
    for cluster in range(int(labels.max()) + 1):
        rows = (before == cluster).nonzero().squeeze(1).tolist()
        mean, most = update_norms(products, rows) if rows else (None, None)
        means.append(mean)
        largest.append(most)
        if mean is None or most is None or len(rows) < SMALLEST_SPLIT or not ready[rows].all():
            continue
        if mean < eps_1 and most > eps_2:
            stay, leave = ([cohort[rows[k]] for k in part] for part in minimum_cut(similarity(rows)))
            after[leave] = int(after.max()) + 1
            splits.append({"cluster": cluster, "stay": stay, "leave": leave})
            divided.extend(rows)
    facts = {
        "clusters": int(after.max()) + 1,
        "cluster_of": after.tolist(),
        "mean_update_norm": means,
        "largest_update_norm": largest,
        "splits": splits,
    }
    return Splitting(after, divided, facts)


def minimum_cut(similarity: Tensor) -> tuple[list[int], list[int]]:
    """The two parts with the least similarity between them (Stoer & Wagner 1997); the larger one first."""
    import networkx as nx

    rows, columns = np.triu_indices(len(similarity), k=1)
    graph = nx.Graph()
    graph.add_weighted_edges_from(
        zip(rows.tolist(), columns.tolist(), similarity.numpy()[rows, columns].tolist(), strict=True)
    )
    _, parts = nx.stoer_wagner(graph)
    larger, smaller = sorted((sorted(part) for part in parts), key=lambda part: (-len(part), part))
    return larger, smaller


def cluster_means(labels: Tensor, counts: Tensor) -> Tensor:
    """Mixing weights: everybody gets the mean of its cluster, weighted by ``counts``."""
    shares = (labels[:, None] == labels) * counts.double()
    return shares / shares.sum(dim=1, keepdim=True)


def dtw_distances(sequences: Tensor) -> Tensor:
    """Dynamic time warping between all pairs of rows of ``(clients, length)``: ``(clients, clients)``.

    The root of the least sum of squared differences over all monotone alignments.
    """
    costs = (sequences[:, None, :, None] - sequences[None, :, None, :]).square()
    length = sequences.shape[1]
    least = costs.new_full((*costs.shape[:2], length + 1, length + 1), torch.inf)
    least[..., 0, 0] = 0.0
    for i in range(length):
        for j in range(length):
            reached = torch.minimum(least[..., i, j], torch.minimum(least[..., i, j + 1], least[..., i + 1, j]))
            least[..., i + 1, j + 1] = costs[..., i, j] + reached
    return least[..., -1, -1].sqrt()
