"""The order of nodes and classes follows from content alone."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fedgkd.data.canonical import canonical_order
from fedgkd.data.graph import Graph
from fedgkd.data.prepare import prepare


def _relabelled(graph: Graph, seed: int) -> Graph:
    """The same graph with nodes and classes numbered otherwise."""
    rng = np.random.default_rng(seed)
    nodes, classes = rng.permutation(graph.num_nodes), rng.permutation(graph.num_classes)
    y = np.where(graph.y < 0, graph.y, classes[graph.y])
    return Graph(graph.x[nodes], np.argsort(nodes)[graph.edge_index], y[nodes], graph.num_classes)


def _assert_same_when_prepared(one: Graph, other: Graph, *, largest_component: bool = False) -> None:
    first, second = (prepare(graph, largest_component=largest_component, name="g") for graph in (one, other))
    assert first.edge_index.tobytes() == second.edge_index.tobytes()
    assert first.y.tobytes() == second.y.tobytes()
    assert _dense(first).tobytes() == _dense(second).tobytes()


def _dense(graph: Graph) -> np.ndarray:
    return graph.x.toarray() if isinstance(graph.x, sp.csr_array) else graph.x


@st.composite
def _graphs(draw: st.DrawFn) -> Graph:
    """Small graphs with few different features, so that many nodes look alike."""
    size = draw(st.integers(1, 9))
    x = draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=size, max_size=size))
    node = st.integers(0, size - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=20))
    y = draw(st.lists(st.integers(-1, 2), min_size=size, max_size=size))
    return Graph(np.array(x), np.array(edges, dtype=np.int64).reshape(-1, 2).T, np.array(y), 3)


def _rings(*sizes: int, classes: int = 1) -> Graph:
    """Disjoint rings of equal nodes: neighbours alone never tell a ring of five from a ring of seven."""
    starts = np.cumsum((0, *sizes))[:-1]
    edges = [
        (start + i, start + (i + 1) % size) for start, size in zip(starts, sizes, strict=True) for i in range(size)
    ]
    total = sum(sizes)
    return Graph(np.ones((total, 1)), np.array(edges).T, np.arange(total) % classes, max(classes, 2))


@given(_graphs(), st.integers(0, 2**32), st.booleans())
def test_numbering_of_nodes_and_classes_does_not_matter(graph: Graph, seed: int, largest_component: bool) -> None:
    _assert_same_when_prepared(graph, _relabelled(graph, seed), largest_component=largest_component)


_LABELLED_AND_NOT = Graph(np.ones((2, 1)), np.empty((2, 0)), np.array([-1, 0]), 2)


@pytest.mark.parametrize(
    "graph", [_LABELLED_AND_NOT, _rings(5, 7), _rings(5, 10, 5, classes=2), _rings(12, classes=4), _rings(3, 6, 3)]
)
@pytest.mark.parametrize("seed", range(5))
def test_nodes_that_refinement_cannot_tell_apart(graph: Graph, seed: int) -> None:
    _assert_same_when_prepared(graph, _relabelled(graph, seed))


def test_many_twins_take_one_pass() -> None:
    """20,000 leaves of one star would take hours if each were marked in turn."""
    leaves = np.arange(1, 20_001)
    star = Graph(np.ones((20_001, 1)), np.stack([np.zeros_like(leaves), leaves]), np.arange(20_001) % 2, 2)
    _assert_same_when_prepared(star, _relabelled(star, 1))


def test_different_graphs_stay_different() -> None:
    one = prepare(_rings(6, 6), largest_component=False, name="g")
    other = prepare(_rings(3, 3, 6), largest_component=False, name="g")
    assert one.edge_index.tolist() != other.edge_index.tolist()


def test_classes_come_largest_first() -> None:
    graph = Graph(np.eye(6), np.empty((2, 0)), np.array([2, 0, 2, 1, 1, 2]), 4)
    assert canonical_order(graph)[1].tolist() == [2, 1, 0, 3]


def test_dense_and_sparse_features_give_one_order() -> None:
    x = np.array([[0, 1.5], [2, 0], [-0.0, 3], [0, 0]], dtype=np.float32)
    edges, y = np.array([[0, 1], [1, 0]]), np.array([0, 1, 1, 0])
    with_zeros = sp.csr_array((x.ravel(), np.tile([0, 1], 4), np.arange(0, 9, 2)), shape=x.shape)
    orders = [canonical_order(Graph(features, edges, y, 2)) for features in (x, sp.csr_array(x), with_zeros)]
    for nodes, classes in orders[1:]:
        assert nodes.tolist() == orders[0][0].tolist()
        assert classes.tolist() == orders[0][1].tolist()
