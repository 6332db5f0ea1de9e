"""All clients' nodes in one graph, for oracles that may see what no client does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fedgkd.data.federation import Federation
from fedgkd.data.graph import Features, Graph
from fedgkd.errors import DataError


@dataclass(frozen=True, eq=False)
class Pool:
    """One graph, and which of its nodes each client has."""

    graph: Graph
    members: tuple[NDArray[np.int64], ...]


def union(federation: Federation) -> Pool:
    """The clients' graphs side by side, without an edge between them; a node of two clients is there twice."""
    graphs = federation.graphs
    sizes = [graph.num_nodes for graph in graphs]
    first = np.cumsum([0, *sizes])
    masks = [graph.masks for graph in graphs if graph.masks is not None]
    train, val, test = (np.concatenate(parts) for parts in zip(*masks, strict=True))
    edges = [start + graph.edge_index for start, graph in zip(first[:-1], graphs, strict=True)]
    pooled = Graph(
        _stacked([graph.x for graph in graphs]),
        np.concatenate(edges, axis=1),
        np.concatenate([graph.y for graph in graphs]),
        federation.num_classes,
        train,
        val,
        test,
        name=f"all clients of {federation.dataset}",
    )
    return Pool(pooled, tuple(np.split(np.arange(first[-1]), first[1:-1])))


def whole(federation: Federation) -> Pool:
    """The graph before it was divided, with the edges that no client has.

    Raises:
        DataError: If the clients brought graphs of their own.
    """
    if federation.whole is None or federation.node_ids is None:
        raise DataError(
            f"{federation.dataset}: the clients' graphs were never one, so there is no whole graph; use graph = union"
        )
    return Pool(federation.whole, federation.node_ids)


def _stacked(parts: list[Features]) -> Features:
    dense = [part for part in parts if isinstance(part, np.ndarray)]
    if len(dense) == len(parts):
        return np.concatenate(dense)
    return sp.csr_array(sp.vstack([sp.csr_array(part) for part in parts]))
