from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from fedgkd.data.federation import Federation
from fedgkd.data.graph import Graph
from fedgkd.data.partition import partition
from fedgkd.data.pooling import union, whole
from fedgkd.errors import DataError
from tests.graphs import planted_federation, random_graph


def _graph(x: list[list[float]], edges: list[list[int]], sparse: bool = False) -> Graph:
    train = np.arange(len(x)) == 0
    values = np.array(x, np.float32)
    y = np.arange(len(x)) % 2
    return Graph(sp.csr_array(values) if sparse else values, edges, y, 2, train, ~train, np.zeros(len(x), bool))


@pytest.mark.parametrize("sparse", [False, True])
def test_the_union_keeps_every_node_and_edge_and_adds_none(sparse: bool) -> None:
    one = _graph([[1.0], [2.0]], [[0, 1], [1, 0]])
    two = _graph([[3.0], [4.0], [5.0]], [[1, 2], [2, 1]], sparse)
    pool = union(Federation((one, two), dataset="two", setting="own-graphs"))
    x = pool.graph.x.toarray() if sparse else pool.graph.x
    assert x.ravel().tolist() == [1, 2, 3, 4, 5]
    assert pool.graph.edge_index.tolist() == [[0, 1, 3, 4], [1, 0, 4, 3]]
    assert pool.graph.y.tolist() == [0, 1, 0, 1, 0]
    assert pool.graph.masks is not None
    assert pool.graph.masks[0].tolist() == [True, False, True, False, False]
    assert [nodes.tolist() for nodes in pool.members] == [[0, 1], [2, 3, 4]]


def test_the_whole_graph_has_the_edges_that_were_cut() -> None:
    graph = random_graph(40, seed=1)
    federation = partition(graph, 3, seed=0)
    pool = whole(federation)
    assert pool.graph.num_edges == graph.num_edges > sum(part.num_edges for part in federation.graphs)
    for nodes, part in zip(pool.members, federation.graphs, strict=True):
        np.testing.assert_array_equal(pool.graph.x[nodes], part.x)
        assert pool.graph.masks is not None
        assert part.masks is not None
        for ours, theirs in zip(pool.graph.masks, part.masks, strict=True):
            np.testing.assert_array_equal(ours[nodes], theirs)


def test_graphs_that_were_never_one_have_no_whole() -> None:
    with pytest.raises(DataError, match="there is no whole graph; use graph = union"):
        whole(planted_federation(2))
