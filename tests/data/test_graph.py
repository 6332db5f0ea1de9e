"""A graph is checked once, when it is made, and every error says where."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from fedgkd.data.graph import Graph, undirected
from fedgkd.errors import DataError
from tests.graphs import random_graph


def parts(**changes: Any) -> dict[str, Any]:
    """A path of three nodes and two classes."""
    fields: dict[str, Any] = {
        "x": [[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]],
        "edge_index": [[0, 1, 1, 2], [1, 0, 2, 1]],
        "y": [0, 1, -1],
        "num_classes": 2,
        "name": "path",
    }
    return fields | changes


MASKS = {
    "train_mask": np.array([True, False, False]),
    "val_mask": np.array([False, True, False]),
    "test_mask": np.array([False, False, False]),
}


@pytest.mark.parametrize("sparse", [False, True])
def test_what_a_graph_holds(sparse: bool) -> None:
    x: Any = np.array(parts()["x"])
    graph = Graph(**parts(x=sp.coo_array(x) if sparse else x))
    assert (graph.num_nodes, graph.num_features, graph.num_edges, graph.is_sparse) == (3, 2, 4, sparse)
    assert graph.x.dtype == np.float32
    assert graph.edge_index.dtype == graph.y.dtype == np.int64
    assert graph.masks is None
    assert graph.adjacency().toarray().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": np.empty((0, 2)), "y": [], "edge_index": np.empty((2, 0))}, r"path: the graph is empty \(no nodes\)"),
        ({"x": np.empty((3, 0))}, "the nodes have no features"),
        ({"x": [["a", "b"]] * 3}, "x must be a table of numbers"),
        ({"x": [1.0, 2.0, 3.0]}, "x must be a table of numbers"),
        ({"x": np.ones((3, 2), np.complex64)}, "x must be a table of numbers .* type complex64"),
        ({"x": [[1, 0], [0, np.nan], [0, 0]]}, r"NaN or infinite value \(node 1, column 1\)"),
        ({"x": [[1, 0], [0, 0], [np.inf, 0]]}, r"NaN or infinite value \(node 2, column 0\)"),
        ({"x": sp.csr_array(np.array([[1, 0], [0, 0], [0, -np.inf]]))}, r"infinite value \(node 2, column 1\)"),
        ({"edge_index": [[0, 1, 2]]}, r"edge_index must have shape \(2, edges\)"),
        ({"edge_index": [[0, 1], [1, 3]]}, r"edge 1 \(1 → 3\) names a node that does not exist; .* 0..2"),
        ({"edge_index": [[0, -1], [1, 0]]}, r"edge 1 \(-1 → 0\) names a node that does not exist"),
        ({"edge_index": [[0.5], [1.0]]}, "edge_index must hold whole numbers"),
        ({"y": [0, 1]}, "y must have one label for each of the 3 nodes"),
        ({"y": [0, 1, 2]}, "node 2 has label 2, outside the 2 classes 0..1"),
        ({"y": [0, -2, 1]}, "node 1 has label -2"),
        ({"y": [0.0, np.nan, 1.0]}, "y must hold whole numbers"),
        ({"y": [0.0, np.inf, 1.0]}, "y must hold whole numbers"),
        ({"y": ["a", "b", "c"]}, "y must hold whole numbers"),
        ({"y": [0, 0, 0], "num_classes": 1}, "needs at least 2 classes, found 1"),
        ({"y": [0, 2**40, 1], "num_classes": 2**40 + 1}, r"100,000 at most; found 1,099,.* is that of node 1\)"),
        ({"feature_names": ("a",)}, "feature_names has 1 entries, expected 2"),
        ({"class_names": ("a",)}, "class_names has 1 entries, expected 2"),
        ({"node_names": ("a",)}, "node_names has 1 entries, expected 3"),
        ({"train_mask": MASKS["train_mask"]}, "val_mask, test_mask missing: give all three masks or none"),
        (MASKS | {"val_mask": np.array([1, 0, 0])}, "val_mask must hold one true/false value for each of the 3 nodes"),
        (MASKS | {"test_mask": MASKS["train_mask"]}, "node 0 is in more than one"),
        (MASKS | {"test_mask": np.array([False, False, True])}, "node 2 is in a mask but has no label"),
    ],
)
def test_bad_parts_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Graph(**parts(**changes))


def test_subgraph_keeps_what_belongs_to_its_nodes() -> None:
    graph = Graph(**parts(**MASKS, node_names=("a", "b", "c")))
    part = graph.subgraph(np.array([2, 1]), name="part")
    assert part.x.tolist() == [[3.0, 0.0], [0.0, 2.0]]
    assert part.y.tolist() == [-1, 1]
    assert sorted(part.edge_index.T.tolist()) == [[0, 1], [1, 0]]
    assert part.node_names == ("c", "b")
    assert part.masks is not None
    assert part.masks[1].tolist() == [False, True]
    assert (part.name, part.num_classes) == ("part", 2)


def test_undirected_stores_each_direction_once_in_order() -> None:
    edges = undirected(np.array([[2, 0, 1, 1, 0], [1, 1, 2, 1, 1]]), 3)
    assert edges.T.tolist() == [[0, 1], [1, 0], [1, 1], [1, 2], [2, 1]]


def test_the_simple_graph_has_no_loops_repeats_or_directions() -> None:
    graph = Graph(**parts(edge_index=[[0, 0, 1, 1], [1, 1, 1, 2]]))
    assert graph.simple_adjacency().toarray().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize("sparse", [False, True])
def test_to_pyg_and_back(sparse: bool) -> None:
    graph = random_graph(sparse=sparse)
    data = graph.to_pyg()
    again = Graph.from_pyg(data, num_classes=graph.num_classes)
    assert data.num_nodes == graph.num_nodes
    assert again.is_sparse == sparse
    dense = [matrix.x.toarray() if sparse else matrix.x for matrix in (graph, again)]
    np.testing.assert_array_equal(*dense)
    np.testing.assert_array_equal(graph.edge_index, again.edge_index)
    np.testing.assert_array_equal(graph.y, again.y)
    assert graph.masks is not None
    assert again.masks is not None
    np.testing.assert_array_equal(np.stack(graph.masks), np.stack(again.masks))


def test_from_pyg_counts_classes_and_names_what_is_missing() -> None:
    torch = pytest.importorskip("torch")
    pyg = pytest.importorskip("torch_geometric.data")
    edge_index = torch.tensor([[0, 1], [1, 0]])
    data = pyg.Data(x=torch.eye(2), edge_index=edge_index, y=torch.tensor([[0], [2]]))
    assert Graph.from_pyg(data).num_classes == 3
    with pytest.raises(DataError, match="mine: the PyG Data object has no 'y'"):
        Graph.from_pyg(pyg.Data(x=torch.eye(2), edge_index=edge_index), name="mine")


def test_the_data_layer_does_not_import_torch() -> None:
    modules = ("own", "npz", "tables", "partition", "splits", "statistics", "paper", "datasets", "federation")
    code = f"import sys, {', '.join(f'fedgkd.data.{name}' for name in modules)}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
