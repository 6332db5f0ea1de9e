"""The data protocol: from a graph as published to the graph that experiments use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from fedgkd.data.canonical import canonical_order
from fedgkd.data.graph import Features, Graph, undirected

# From this share of nonzeros on, a dense table is smaller or as small, and faster to compute with.
_DENSE_FROM = 0.25


def prepare(graph: Graph, *, largest_component: bool = True, normalise_rows: bool = True, name: str) -> Graph:
    """Undirected, no self-loops, no duplicates, in canonical order; by default the largest component, rows scaled.

    Args:
        graph: A graph as published.
        largest_component: Keep only the largest connected component.
        normalise_rows: Divide the features of each node by their sum.
        name: What to call the prepared graph.
    """
    graph = in_canonical_order(replace(graph, edge_index=_simple_edges(graph), name=name))
    if largest_component:
        graph = graph.subgraph(_largest_component(graph))
    x = _sum_to_one(graph.x) if normalise_rows else graph.x
    return replace(graph, x=_compact(x))


def prepare_member(graph: Graph, *, name: str) -> Graph:
    """One graph of a natural federation: undirected, no self-loops, rows scaled; all nodes, in their published order.

    Its classes must keep their numbers, which mean the same in every member.
    """
    return replace(graph, edge_index=_simple_edges(graph), x=_compact(_sum_to_one(graph.x)), name=name)


def in_canonical_order(graph: Graph) -> Graph:
    """The same undirected graph with nodes and classes numbered by content; it must have no masks and no node names."""
    nodes, classes = canonical_order(graph)
    new_node, new_class = np.argsort(nodes), np.argsort(classes)
    return replace(
        graph,
        x=graph.x[nodes],
        edge_index=undirected(new_node[graph.edge_index], graph.num_nodes),
        y=np.where(graph.y < 0, graph.y, new_class[graph.y])[nodes],
        class_names=None if graph.class_names is None else tuple(graph.class_names[c] for c in classes),
    )


def _simple_edges(graph: Graph) -> NDArray[np.int64]:
    edges = undirected(graph.edge_index, graph.num_nodes)
    return edges[:, edges[0] != edges[1]]


def _largest_component(graph: Graph) -> NDArray[np.int64]:
    """Nodes of the largest component; of two as large, the one that comes first in the graph's order."""
    _, component = connected_components(graph.adjacency(), directed=False)
    return np.flatnonzero(component == np.bincount(component).argmax())


def _sum_to_one(x: Features) -> Features:
    """Divide each row by its sum; a row that sums to zero stays as it is."""
    rows = sp.csr_array(x, copy=True)
    rows.eliminate_zeros()
    sums = rows.sum(axis=1, dtype=np.float64)
    sums[sums == 0] = 1.0
    rows.data = (rows.data / np.repeat(sums, np.diff(rows.indptr))).astype(np.float32)
    return rows


def _compact(x: Features) -> Features:
    """Dense where that is as small, else with 32-bit indices whatever the file had, so that equal means equal bits."""
    if not isinstance(x, sp.csr_array):
        return x
    if x.nnz >= _DENSE_FROM * x.shape[0] * x.shape[1]:
        return x.toarray()
    return sp.csr_array((x.data, x.indices.astype(np.int32), x.indptr.astype(np.int32)), shape=x.shape)
