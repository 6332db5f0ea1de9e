from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import scipy.sparse as sp

from fedgkd.clients import encodings
from fedgkd.clients.encodings import degree_one_hot, return_probabilities, structure_encoding
from fedgkd.data.graph import Graph
from tests.graphs import random_graph


def _adjacency(nodes: int, *edges: tuple[int, int]) -> sp.csr_array:
    dense = np.zeros((nodes, nodes), np.float32)
    for u, v in edges:
        dense[u, v] = dense[v, u] = 1.0
    return sp.csr_array(dense)


def test_walks_on_a_triangle() -> None:
    """Back after k steps with probability (1 + 2 (−1/2)^k) / 3."""
    found = return_probabilities(_adjacency(3, (0, 1), (1, 2), (0, 2)), 5)
    expected = [(1 + 2 * (-0.5) ** k) / 3 for k in range(1, 6)]
    np.testing.assert_allclose(found, [expected] * 3, atol=1e-6)
    assert found[0, 1] == pytest.approx(0.5)


def test_walks_on_a_path_of_three() -> None:
    """The middle returns at every second step; an end then with probability 1/2."""
    found = return_probabilities(_adjacency(3, (0, 1), (1, 2)), 4)
    np.testing.assert_allclose(found, [[0, 0.5, 0, 0.5], [0, 1, 0, 1], [0, 0.5, 0, 0.5]], atol=1e-6)


def test_an_isolated_node_is_all_zeros() -> None:
    adjacency = _adjacency(3, (0, 2))
    walks, degrees = return_probabilities(adjacency, 4), degree_one_hot(adjacency, 2)
    assert np.isfinite(walks).all()
    assert not walks[1].any()
    np.testing.assert_array_equal(walks[0], [0, 1, 0, 1])
    np.testing.assert_array_equal(degrees, [[1, 0], [0, 0], [1, 0]])


def test_degrees_above_the_largest_share_its_column() -> None:
    star = _adjacency(5, *((0, leaf) for leaf in range(1, 5)), (1, 2))
    np.testing.assert_array_equal(degree_one_hot(star, 3), [[0, 0, 1], [0, 1, 0], [0, 1, 0], [1, 0, 0], [1, 0, 0]])


def test_equals_the_diagonals_of_dense_powers_whatever_the_block() -> None:
    adjacency = random_graph(40, seed=5).simple_adjacency()
    dense = adjacency.toarray().astype(np.float64)
    walk = dense / np.maximum(dense.sum(axis=0), 1.0)
    expected = np.stack([np.linalg.matrix_power(walk, k).diagonal() for k in range(1, 17)], axis=1)
    for block in (None, 1, 7, 40):
        np.testing.assert_allclose(return_probabilities(adjacency, 16, block), expected, atol=1e-6)


def test_self_loops_and_directions_do_not_count() -> None:
    once = Graph(np.ones((3, 1)), np.array([[0, 1, 1], [1, 2, 1]]), np.array([0, 1, 0]), 2)
    both = Graph(np.ones((3, 1)), np.array([[0, 1, 1, 2], [1, 0, 2, 1]]), np.array([0, 1, 0]), 2)
    np.testing.assert_array_equal(structure_encoding(once, 4, 3), structure_encoding(both, 4, 3))


def test_a_graph_is_encoded_once_and_then_forgotten_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph()
    first = structure_encoding(graph, 3, 2)
    assert first.shape == (graph.num_nodes, 5)
    monkeypatch.setattr(encodings, "return_probabilities", lambda *_: pytest.fail("encoded twice"))
    assert structure_encoding(graph, 3, 2) is first
    gone = weakref.ref(graph)
    del graph
    gc.collect()
    assert gone() is None
