"""What a graph and a federation look like in numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fedgkd.data.federation import Federation
from fedgkd.data.graph import UNLABELLED, Graph, distinct

_ROWS_AT_A_TIME = 16_384  # bounds the memory of the products that count triangles


@dataclass(frozen=True)
class GraphStatistics:
    """One graph.

    Args:
        nodes: Number of nodes.
        edges: Number of directed edges.
        features: Number of feature columns.
        classes: Number of classes.
        clustering: Average local clustering coefficient of the undirected simple graph.
        homophily: Share of the edges between labelled nodes whose ends have the same label; NaN without such edges.
        isolated: Number of nodes without a neighbour.
    """

    nodes: int
    edges: int
    features: int
    classes: int
    clustering: float
    homophily: float
    isolated: int


@dataclass(frozen=True)
class FederationStatistics:
    """Means over the clients of a federation.

    Args:
        clients: Number of clients.
        nodes: Mean number of nodes.
        edges: Mean number of directed edges.
        clustering: Mean of the clients' average clustering coefficients.
        homophily: Mean edge homophily, over the clients that have edges.
        heterogeneity: Median over pairs of clients of :func:`label_divergence`; NaN for a single client.
        lost_edges: Share of the whole graph's edges that no client holds; NaN where the whole graph is not known.
    """

    clients: int
    nodes: float
    edges: float
    clustering: float
    homophily: float
    heterogeneity: float
    lost_edges: float


def graph_statistics(graph: Graph) -> GraphStatistics:
    adjacency = graph.simple_adjacency()
    return GraphStatistics(
        nodes=graph.num_nodes,
        edges=graph.num_edges,
        features=graph.num_features,
        classes=graph.num_classes,
        clustering=float(local_clustering(adjacency).mean()),
        homophily=edge_homophily(graph),
        isolated=int((np.diff(adjacency.indptr) == 0).sum()),
    )


def federation_statistics(federation: Federation, whole: Graph | None = None) -> FederationStatistics:
    """The federation in numbers; ``whole`` is the graph it was cut from, where there is one."""
    clients = [graph_statistics(graph) for graph in federation.graphs]
    homophily = np.array([client.homophily for client in clients])
    pairs = label_divergence(federation)[np.triu_indices(len(clients), k=1)]
    return FederationStatistics(
        clients=len(clients),
        nodes=float(np.mean([client.nodes for client in clients])),
        edges=float(np.mean([client.edges for client in clients])),
        clustering=float(np.mean([client.clustering for client in clients])),
        homophily=_mean_or_nan(homophily[~np.isnan(homophily)]),
        heterogeneity=float(np.median(pairs)) if pairs.size else float("nan"),
        lost_edges=_lost_edges(federation, whole),
    )


def local_clustering(adjacency: sp.csr_array) -> NDArray[np.float64]:
    """Each node's share of the pairs of its neighbours that are connected; 0 with fewer than two neighbours.

    ``adjacency`` is symmetric with 0/1 entries and no self-loops. Every edge is pointed to its end of higher degree, so
    that a triangle becomes :math:`a → b → c` with :math:`a → c`. That makes the counting cheap around hubs.
    """
    n = adjacency.shape[0]
    degree = np.diff(adjacency.indptr).astype(np.int64)
    rank = np.empty(n, np.int64)
    rank[np.argsort(degree, kind="stable")] = np.arange(n)
    source, target = adjacency.nonzero()
    up = rank[source] < rank[target]
    out = sp.csr_array((np.ones(int(up.sum())), (source[up], target[up])), shape=(n, n))
    into = out.T.tocsr()
    triangles = np.zeros(n)
    for start in range(0, n, _ROWS_AT_A_TIME):
        rows = slice(start, start + _ROWS_AT_A_TIME)
        ends = (out[rows] @ out).multiply(out[rows])  # at (a, c): how many b
        middle = (into[rows] @ out).multiply(out[rows])  # at (b, c): how many a
        triangles[rows] += ends.sum(axis=1) + middle.sum(axis=1)
        triangles += ends.sum(axis=0)
    possible = degree * (degree - 1) / 2
    return np.divide(triangles, possible, out=np.zeros(n), where=possible > 0)


def edge_homophily(graph: Graph) -> float:
    """Share of the edges between two different labelled nodes whose ends have the same label."""
    source, target = graph.edge_index
    labels = graph.y[graph.edge_index]
    counted = (source != target) & (labels != UNLABELLED).all(axis=0)
    return _mean_or_nan(labels[0, counted] == labels[1, counted])


def label_counts(federation: Federation) -> NDArray[np.int64]:
    """How many nodes of each class every client has, whatever mask they are in: ``(clients, classes)``."""
    return np.stack(
        [np.bincount(graph.y[graph.y != UNLABELLED], minlength=graph.num_classes) for graph in federation.graphs]
    )


def label_divergence(federation: Federation) -> NDArray[np.float64]:
    """Jensen–Shannon divergence, in nats, between the label distributions of every two clients, ``(n, n)``."""
    return jensen_shannon(label_counts(federation))


def jensen_shannon(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Divergence in nats between every two rows of counts."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    entropy = _entropy(shares)
    mixed = _entropy((shares[:, None] + shares[None]) / 2)
    return np.maximum(mixed - (entropy[:, None] + entropy[None]) / 2, 0.0)


def _entropy(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    entropy: NDArray[np.float64] = -(shares * logs).sum(axis=-1)
    return entropy


def _lost_edges(federation: Federation, whole: Graph | None) -> float:
    if whole is None or federation.node_ids is None or whole.num_edges == 0:
        return float("nan")
    held = [nodes[graph.edge_index] for graph, nodes in zip(federation.graphs, federation.node_ids, strict=True)]
    kept = _different_edges(np.concatenate(held, axis=1), whole.num_nodes)
    return 1 - kept / _different_edges(whole.edge_index, whole.num_nodes)


def _different_edges(edge_index: NDArray[np.int64], num_nodes: int) -> int:
    return len(distinct(edge_index[0] * num_nodes + edge_index[1]))


def _mean_or_nan(values: NDArray[np.float64] | NDArray[np.bool_]) -> float:
    return float(values.mean()) if values.size else float("nan")
