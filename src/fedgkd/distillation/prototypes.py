"""A client's task without training: the mean of each class on its own graph, a distilled graph in closed form.

Distribution matching with one node per class asks for the node that is nearest to the class's mean after two graph
convolutions; that is the mean itself. So a prototype is a static distilled graph that takes no step to find.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgkd.clients import ClientBatch
from fedgkd.data.graph import Graph
from fedgkd.randomness import stream

HOPS = 2
"""Convolutions before the mean: as many as the networks have."""

Array = NDArray[np.float64]


def prototypes(clients: ClientBatch, size: int, noise: float, min_count: int) -> tuple[Tensor, Tensor]:
    """Every client's class prototypes ``(clients, classes, numbers)``, and how many training nodes are behind each.

    A class with fewer than ``min_count`` training nodes is not told: its prototype and its count are 0.

    Args:
        size: Numbers per prototype, by a random projection common to all clients; 0 for one per feature.
        noise: Standard deviation of the noise on a prototype, as a whole; a prototype's norm is at most 2.
    """
    features, counts = [], []
    for client, graph in zip(clients.ids, clients.graph.graphs, strict=True):
        labels = graph.y[_training_nodes(graph)]
        count = np.bincount(labels, minlength=graph.num_classes).astype(np.float64)
        count[count < min_count] = 0.0
        means = _class_means(graph)
        if size:
            means = means @ _projection(graph.num_features, size, clients.seed)
        if noise:
            draw = stream(clients.seed, "prototype noise", client, _secret(graph))
            means = means + noise * draw.standard_normal(means.shape) / np.sqrt(means.shape[1])
        features.append(torch.from_numpy(means * (count > 0)[:, None]).float())
        counts.append(torch.from_numpy(count).float())
    return torch.stack(features).to(clients.device), torch.stack(counts).to(clients.device)


def _class_means(graph: Graph) -> Array:
    """The means of smoothed features over each class's training nodes, less the mean over all of the client's nodes."""
    h = _smoothed(graph)
    nodes = _training_nodes(graph)
    labels = graph.y[nodes]
    share = 1.0 / np.bincount(labels)[labels]
    averages = sp.csr_array((share, (labels, nodes)), shape=(graph.num_classes, graph.num_nodes))
    means: Array = (averages @ h).toarray() - np.asarray(h.mean(axis=0)).ravel()
    return means


def _smoothed(graph: Graph) -> sp.csr_array:
    r""":math:`\hat A^2 X` with rows of norm 1; a row of zeros stays."""
    loops = graph.simple_adjacency() + sp.eye_array(graph.num_nodes, dtype=np.float64)
    scale = sp.diags_array(1.0 / np.sqrt(np.asarray(loops.sum(axis=1))))
    h: sp.csr_array = sp.csr_array(graph.x).astype(np.float64)
    for _ in range(HOPS):
        h = sp.csr_array(scale @ (loops @ (scale @ h)))
    norms = np.sqrt(np.asarray(h.multiply(h).sum(axis=1)))
    return sp.csr_array(sp.diags_array(1.0 / np.where(norms > 0, norms, 1.0)) @ h)


def _training_nodes(graph: Graph) -> NDArray[np.int64]:
    assert graph.masks is not None  # a client's graph has them
    return np.flatnonzero(graph.masks[0])


@lru_cache(maxsize=2)
def _projection(features: int, size: int, seed: int) -> Array:
    """Random signs, which keep inner products on average; every client draws the same from the run's seed."""
    signs = 2 * stream(seed, "prototype projection").integers(0, 2, (features, size)) - 1
    return np.asarray(signs / np.sqrt(size), np.float64)


def _secret(graph: Graph) -> int:
    """A number that only the graph's owner knows: all know the run's seed, and must not know the noise by it."""
    x = graph.x
    parts = (x.data, x.indices, x.indptr) if isinstance(x, sp.csr_array) else (x,)
    digest = hashlib.sha256()
    for part in (graph.edge_index, graph.y, *parts):
        digest.update(np.ascontiguousarray(part).tobytes())
    return int.from_bytes(digest.digest()[:16], "little")
