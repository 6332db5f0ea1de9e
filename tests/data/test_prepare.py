"""The data protocol, on graphs small enough to work out by hand."""

import numpy as np
import scipy.sparse as sp

from fedgkd.data.graph import Graph
from fedgkd.data.prepare import prepare


def _published() -> Graph:
    """0-1-2 joined (one edge twice, one loop), 3-4 joined, 5 alone; feature sums 4, 2, 0, 1, 1, 1."""
    x = np.array([[1, 3, 0], [0, 2, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]])
    edges = np.array([[0, 1, 0, 2, 2, 3], [1, 0, 1, 1, 2, 4]])
    return Graph(x, edges, np.array([0, 1, 1, 0, 0, 1]), 2, class_names=("even", "odd"))


def test_largest_component_with_simple_edges_and_scaled_rows() -> None:
    graph = prepare(_published(), name="tiny")
    assert graph.name == "tiny"
    assert (graph.num_nodes, graph.num_edges, graph.num_classes) == (3, 4, 2)
    assert graph.is_sparse is False  # 3 of 9 values: a table is as small
    rows = {tuple(row): position for position, row in enumerate(graph.x.tolist())}
    assert set(rows) == {(0.25, 0.75, 0), (0, 1, 0), (0, 0, 0)}
    first, middle, last = rows[0.25, 0.75, 0], rows[0, 1, 0], rows[0, 0, 0]
    edges = {tuple(edge) for edge in graph.edge_index.T.tolist()}
    assert edges == {(first, middle), (middle, first), (middle, last), (last, middle)}
    assert graph.class_names is not None
    names = [graph.class_names[label] for label in graph.y]
    assert [names[node] for node in (first, middle, last)] == ["even", "odd", "odd"]


def test_whole_graph_with_features_as_they_are() -> None:
    graph = prepare(_published(), largest_component=False, normalise_rows=False, name="tiny")
    assert (graph.num_nodes, graph.num_edges) == (6, 6)
    assert sorted(graph.x.sum(axis=1).tolist()) == [0, 1, 1, 1, 2, 4]


def test_edges_are_sorted() -> None:
    graph = prepare(_published(), largest_component=False, name="tiny")
    edges = graph.edge_index.T.tolist()
    assert edges == sorted(edges)


def test_mostly_empty_features_stay_sparse() -> None:
    x = sp.csr_array(np.eye(8))
    edges = np.array([range(7), range(1, 8)])
    graph = prepare(Graph(x, edges, np.arange(8) % 2, 2), name="path")
    assert graph.is_sparse
    assert graph.x.nnz == 8


def test_rows_that_sum_to_zero_stay() -> None:
    graph = prepare(Graph(np.array([[1, -1], [2, 2]]), np.array([[0], [1]]), np.array([0, 1]), 2), name="pair")
    assert sorted(graph.x.tolist()) == [[0.5, 0.5], [1, -1]]
