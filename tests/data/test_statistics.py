"""Statistics against networkx and against numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgkd.data import statistics
from fedgkd.data.federation import Federation
from fedgkd.data.graph import Graph
from fedgkd.data.partition import partition
from fedgkd.data.statistics import edge_homophily, federation_statistics, graph_statistics, label_divergence
from tests.graphs import random_graph


def path(labels: list[int], edges: list[tuple[int, int]]) -> Graph:
    both = [*edges, *((v, u) for u, v in edges)]
    n = len(labels)
    edge_index = np.array(both, np.int64).reshape(-1, 2).T
    everyone = np.array(labels) >= 0
    return Graph(np.ones((n, 1)), edge_index, np.array(labels), 2, everyone, np.zeros(n, bool), np.zeros(n, bool))


def federation(*graphs: Graph) -> Federation:
    return Federation(graphs, dataset="mine", setting="own-graphs")


def test_one_graph_by_hand() -> None:
    # A triangle 0-1-2 with a tail 2-3, and 4 alone. Clustering: 1, 1, 1/3, 0, 0.
    graph = path([0, 0, 1, 1, -1], [(0, 1), (1, 2), (0, 2), (2, 3)])
    found = graph_statistics(graph)
    assert (found.nodes, found.edges, found.features, found.classes, found.isolated) == (5, 8, 1, 2, 1)
    assert found.clustering == pytest.approx((1 + 1 + 1 / 3) / 5)
    assert found.homophily == pytest.approx(4 / 8)


def test_homophily_leaves_out_loops_and_unknown_labels() -> None:
    graph = path([0, 0, 1, -1], [(0, 1), (1, 2), (2, 3), (0, 0)])
    assert edge_homophily(graph) == pytest.approx(1 / 2)
    assert math.isnan(edge_homophily(path([0, 1, 1, -1], [(2, 3)])))


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), nodes=st.integers(1, 40), density=st.floats(0, 1), rows=st.integers(1, 50))
def test_clustering_equals_networkx(seed: int, nodes: int, density: float, rows: int) -> None:
    reference = nx.gnp_random_graph(nodes, density, seed=seed)
    graph = path([0] * nodes, list(reference.edges))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "_ROWS_AT_A_TIME", rows)
        found = graph_statistics(graph)
    assert found.clustering == pytest.approx(nx.average_clustering(reference))


def test_divergence_by_hand() -> None:
    same, opposite, half = path([0, 0], []), path([1, 1], []), path([0, 1, -1], [])
    found = label_divergence(federation(same, opposite, half))
    # JSD((1, 0), (1/2, 1/2)) = H(3/4, 1/4) - H(1/2, 1/2) / 2
    mixed = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) - math.log(2) / 2
    expected = [[0, math.log(2), mixed], [math.log(2), 0, mixed], [mixed, mixed, 0]]
    np.testing.assert_allclose(found, expected, atol=1e-15)
    assert federation_statistics(federation(same, opposite, half)).heterogeneity == pytest.approx(mixed)


def test_a_federation_by_hand() -> None:
    graph = path([0, 0, 1, 1, 0, 1], [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (4, 5)])
    ids = (np.array([0, 1, 2]), np.array([3, 4, 5]))
    parts = tuple(graph.subgraph(nodes) for nodes in ids)
    found = federation_statistics(Federation(parts, "mine", "non-overlapping", node_ids=ids), graph)
    assert (found.clients, found.nodes, found.edges) == (2, 3.0, 5.0)  # 6 and 4 directed edges
    assert found.clustering == pytest.approx(0.5)  # a triangle and a path
    assert found.homophily == pytest.approx((1 / 3 + 0) / 2)
    assert found.lost_edges == pytest.approx(2 / 12)


def test_shared_edges_are_not_lost_twice() -> None:
    graph = path([0, 1, 0, 1], [(0, 1), (1, 2), (2, 3)])
    ids = (np.array([0, 1]), np.array([0, 1, 2]))
    parts = tuple(graph.subgraph(nodes) for nodes in ids)
    found = federation_statistics(Federation(parts, "mine", "overlapping", node_ids=ids), graph)
    assert found.lost_edges == pytest.approx(1 / 3)


def test_numbers_that_do_not_exist_are_nan() -> None:
    alone = federation_statistics(federation(path([0, 1], [])))
    assert math.isnan(alone.heterogeneity)
    assert math.isnan(alone.homophily)
    assert math.isnan(alone.lost_edges)
    with_edges = federation_statistics(federation(path([0, 1], []), path([0, 0], [(0, 1)])))
    assert with_edges.homophily == 1.0


def test_nothing_is_lost_in_a_partition_of_one() -> None:
    graph = replace(random_graph(nodes=30), name="g")
    assert federation_statistics(partition(graph, 1), graph).lost_edges == 0.0
