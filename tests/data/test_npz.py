"""Graphs in ``.npz`` files: round trip, users' arrays, gnn-benchmark, and every way a file can be wrong."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from fedgkd.data.graph import Graph
from fedgkd.data.npz import count_classes, load_graph, load_node_ids, save_graph
from fedgkd.errors import DataError
from tests.graphs import random_graph

PLAIN: dict[str, Any] = {
    "x": np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
    "edge_index": np.array([[0, 1], [1, 0]]),
    "y": np.array([0, 1, -1]),
}


def write(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def dense(graph: Graph) -> Any:
    return graph.x.toarray() if isinstance(graph.x, sp.csr_array) else graph.x


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("masks", [False, True])
def test_round_trip(sparse: bool, named: bool, masks: bool, tmp_path: Path) -> None:
    graph = random_graph(sparse=sparse)
    if not masks:
        graph = replace(graph, train_mask=None, val_mask=None, test_mask=None)
    if named:
        nodes = tuple(f"n{i}" for i in range(12))
        graph = replace(graph, feature_names=tuple("abcdef"), class_names=("é", "f", "g"), node_names=nodes)
    path = tmp_path / "g.npz"
    save_graph(path, graph)
    again = load_graph(path)
    assert again.is_sparse == sparse
    np.testing.assert_array_equal(dense(again), dense(graph))
    for field in ("edge_index", "y", "train_mask", "val_mask", "test_mask"):
        np.testing.assert_array_equal(getattr(again, field), getattr(graph, field))
    for field in ("num_classes", "feature_names", "class_names", "node_names"):
        assert getattr(again, field) == getattr(graph, field)
    assert again.name == str(path)
    assert load_graph(path, name="mine").name == "mine"


def test_equal_graphs_give_equal_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a.npz", tmp_path / "b.npz"
    save_graph(first, random_graph(sparse=True))
    save_graph(second, random_graph(sparse=True))
    assert first.read_bytes() == second.read_bytes()


def test_node_ids_come_along(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    save_graph(path, random_graph(), node_ids=np.arange(12) * 3)
    assert (load_node_ids(path) == np.arange(12) * 3).all()
    save_graph(path, random_graph())
    assert load_node_ids(path) is None


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot write .*g\.npz"):
        save_graph(tmp_path / "file" / "g.npz", random_graph())
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_plain_arrays(tmp_path: Path) -> None:
    masks = {key: np.arange(3) == i for i, key in enumerate(("train_mask", "val_mask"))}
    path = write(tmp_path / "g.npz", **PLAIN, **masks, test_mask=np.zeros(3, bool), class_names=["a", "b", "c"])
    graph = load_graph(path)
    assert (graph.num_nodes, graph.num_edges, graph.num_classes) == (3, 2, 3)
    assert graph.masks is not None
    assert graph.class_names == ("a", "b", "c")


def test_classes_are_counted_where_they_are_not_stated(tmp_path: Path) -> None:
    path = write(tmp_path / "g.npz", **PLAIN)
    assert load_graph(path).num_classes == count_classes(path) == 2
    assert load_graph(path, num_classes=5).num_classes == 5
    path = write(tmp_path / "g.npz", **PLAIN, num_classes=4)
    assert load_graph(path, num_classes=5).num_classes == count_classes(path) == 4


def test_gnn_benchmark_keys(tmp_path: Path) -> None:
    adjacency = sp.csr_array(np.array([[0, 1, 0], [0, 0, 0], [0, 1, 1]]))  # directed, with a loop
    features = sp.csr_array(np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]))
    matrices = {
        f"{prefix}_{part}": getattr(matrix, part)
        for prefix, matrix in (("adj", adjacency), ("attr", features))
        for part in ("data", "indices", "indptr", "shape")
    }
    graph = load_graph(write(tmp_path / "g.npz", **matrices, labels=np.array([0, 1, 2])))
    assert graph.edge_index.T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1], [2, 2]]
    assert dense(graph).tolist() == features.toarray().tolist()
    assert graph.num_classes == 3


def test_labels_may_be_missing_for_prediction(tmp_path: Path) -> None:
    path = write(tmp_path / "g.npz", x=PLAIN["x"], edge_index=PLAIN["edge_index"])
    graph = load_graph(path, labels_required=False, num_classes=3)
    assert graph.y.tolist() == [-1, -1, -1]
    assert graph.num_classes == 3
    assert count_classes(path) == 0
    with pytest.raises(DataError, match=r"no node has a label, so the number of classes must be given"):
        load_graph(path, labels_required=False)
    with pytest.raises(DataError, match=r"g\.npz: key 'y' is missing; the file holds edge_index, x"):
        load_graph(path)


@pytest.mark.parametrize("key", ["x", "edge_index", "y"])
def test_a_missing_key_is_named(key: str, tmp_path: Path) -> None:
    path = write(tmp_path / "g.npz", **{name: array for name, array in PLAIN.items() if name != key})
    with pytest.raises(DataError, match=rf"g\.npz: key '{key}' is missing"):
        load_graph(path)


class Malicious:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.path, "executed")


@pytest.mark.parametrize("key", ["x", "y", "edge_index", "num_classes", "class_names", "train_mask"])
def test_objects_are_never_unpickled(key: str, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    arrays = PLAIN | {key: np.array([Malicious(proof)], dtype=object)}
    path = write(tmp_path / "g.npz", **arrays)
    with pytest.raises(
        DataError, match=rf"g\.npz: key '{key}' is an array of Python objects, which is never unpickled"
    ):
        load_graph(path)
    assert not proof.exists()


def test_a_file_that_is_no_npz(tmp_path: Path) -> None:
    proof, path = tmp_path / "proof", tmp_path / "g.npz"
    with pytest.raises(DataError, match=r"g\.npz: no such file"):
        load_graph(path)
    for content in (b"", b"text", pickle.dumps(Malicious(proof))):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"g\.npz: not a readable \.npz file"):
            load_graph(path)
    assert not proof.exists()
    with path.open("wb") as stream:
        np.save(stream, np.arange(3))
    with pytest.raises(DataError, match=r"g\.npz: holds a single array"):
        load_graph(path)
    folder = tmp_path / "folder.npz"
    folder.mkdir()
    with pytest.raises(DataError, match=r"folder\.npz: cannot be read"):
        load_graph(folder)


def test_a_truncated_file_is_one_sentence_wherever_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    save_graph(path, random_graph())
    whole = path.read_bytes()
    for end in range(0, len(whole) - 1, 97):
        path.write_bytes(whole[:end])
        with pytest.raises(DataError, match=r"g\.npz: "):
            load_graph(path)


def test_a_damaged_file_is_one_sentence_or_the_same_graph(tmp_path: Path) -> None:
    path, graph = tmp_path / "g.npz", random_graph(sparse=True)
    save_graph(path, graph)
    whole = path.read_bytes()
    refused = 0
    for position in range(0, len(whole), 13):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
        try:
            again = load_graph(path)
        except DataError:
            refused += 1
        else:
            np.testing.assert_array_equal(dense(again), dense(graph))
            np.testing.assert_array_equal(again.edge_index, graph.edge_index)
            np.testing.assert_array_equal(again.y, graph.y)
    assert refused > len(whole) / 13 / 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": np.array([[1.0, np.nan], [0, 0], [0, 0]])}, r"g\.npz: .*NaN or infinite value \(node 0, column 1\)"),
        ({"x": np.arange(3.0)}, "key 'x' must be a table"),
        ({"edge_index": np.array([[0, 7], [1, 0]])}, r"g\.npz: edge 1 \(7 → 0\) names a node that does not exist"),
        ({"y": np.array([0, 5, 1]), "num_classes": 3}, "g.npz: node 1 has label 5, outside the 3 classes"),
        ({"y": np.array(["a", "b", "c"])}, "g.npz: key 'y' must hold whole numbers"),
        ({"y": np.array([0, 0, 0])}, "at least 2 classes, found 1"),
        ({"num_classes": np.array([2, 3])}, "key 'num_classes' must be one whole number"),
        ({"num_classes": np.array(2.5)}, "key 'num_classes' must be one whole number"),
        ({"train_mask": np.zeros(3, bool)}, "val_mask, test_mask missing"),
        ({"x": np.empty((0, 2)), "y": np.empty(0, int), "num_classes": 2}, "the graph is empty"),
    ],
)
def test_arrays_that_are_no_graph(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        load_graph(write(tmp_path / "g.npz", **(PLAIN | changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {"x_indices": np.array([0, 9])},
        {"x_indptr": np.array([0, 1, 9, 2])},
        {"x_indptr": np.array([0, 1])},
        {"x_shape": np.array([3])},
        {"x_shape": np.array(["a", "b"])},
    ],
)
def test_broken_sparse_parts_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    parts = {
        "x_data": np.ones(2),
        "x_indices": np.array([0, 1]),
        "x_indptr": np.array([0, 1, 2, 2]),
        "x_shape": np.array([3, 2]),
    }
    rest = {key: PLAIN[key] for key in ("edge_index", "y")}
    assert load_graph(write(tmp_path / "good.npz", **parts, **rest)).is_sparse
    with pytest.raises(DataError, match=r"keys 'x_\*' are not a sparse matrix"):
        load_graph(write(tmp_path / "g.npz", **(parts | changes), **rest))
