"""Graphs in ``.npz`` files: round trip, users' arrays, gnn-benchmark, and every way a file can be wrong."""

from __future__ import annotations

import os
import pickle
import tracemalloc
import warnings
import zipfile
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
    assert (load_node_ids(path, 12) == np.arange(12) * 3).all()
    save_graph(path, random_graph())
    assert load_node_ids(path, 12) is None


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
    ("changes", "message"),
    [
        ({"x_indices": np.array([0, 9])}, "'x_indices' names a column that does not exist"),
        ({"x_indices": np.array([0])}, "'x_data' and key 'x_indices' must be lists of one length"),
        ({"x_indptr": np.array([0, 1, 9, 2])}, "'x_indptr' must rise from 0 to 2 in 3 steps"),
        ({"x_indptr": np.array([0, 1])}, "'x_indptr' must rise"),
        ({"x_indptr": np.array([0, 1, 2, -1])}, "'x_indptr' must rise"),  # scipy reads beyond the end
        ({"x_indptr": np.array([0, 1, 1, 1])}, "'x_indptr' must rise"),  # a value that no row holds
        ({"x_shape": np.array([3])}, "'x_shape' must be two sizes"),
        ({"x_shape": np.array([True, True])}, "'x_shape' must hold whole numbers, not bool"),
        ({"x_shape": np.array([np.inf, 4])}, "'x_shape' must hold whole numbers, not float64"),
        ({"x_shape": np.array([3, 2**62])}, "4,611,686,018,427,387,904 feature columns; at most 1,000,000"),
        ({"x_shape": np.array(["a", "b"])}, "'x_shape' must hold whole numbers, not <U1"),
        ({"x_data": np.ones(2, complex)}, "'x_data' holds complex128, which is neither real numbers nor text"),
        ({"x": np.ones((3, 2))}, "holds the features twice, as 'x' and as 'x_data'"),
        ({"labels": np.ones(3)}, "holds keys of two kinds of graph files"),
    ],
)
def test_broken_sparse_parts_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    parts = {
        "x_data": np.ones(2, np.float16),
        "x_indices": np.array([0, 1]),
        "x_indptr": np.array([0, 1, 2, 2]),
        "x_shape": np.array([3, 2]),
    }
    rest = {key: PLAIN[key] for key in ("edge_index", "y")}
    assert load_graph(write(tmp_path / "good.npz", **parts, **rest)).is_sparse
    with pytest.raises(DataError, match=rf"g\.npz: .*{message}"):
        load_graph(write(tmp_path / "g.npz", **(parts | rest | changes)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": np.array([0, 1, 2**64 - 1], np.uint64)}, "key 'y' holds 18446744073709551615, which is too large"),
        ({"y": np.array([0, 1, 1e300])}, r"key 'y' holds 1e\+300, which is too large"),
        ({"y": np.array([0, 1, 1], "m8[s]")}, "key 'y' holds timedelta64.*neither real numbers nor text"),
        ({"x": np.ones((3, 2), complex)}, "key 'x' holds complex128, which is neither real numbers nor text"),
        ({"x": np.zeros(3, [("a", float)])}, "key 'x' holds .*neither real numbers nor text"),
        ({"x": np.full((3, 2), 1e300)}, "NaN or infinite value"),
        ({"edge_index": np.array([[True], [False]])}, "edge_index must hold whole numbers, not bool"),
        ({"class_names": np.array(["a", "a"])}, "class_names holds 'a' twice"),
        ({"class_names": np.array([["a"], ["b"]])}, "key 'class_names' must be a list of names"),
        ({"feature_names": np.array([b"a", b"b"])}, "key 'feature_names' holds .S1, which is neither"),
        ({"feature_names": np.array(["a", ""])}, "feature_names holds an empty name"),
    ],
)
def test_values_that_numpy_would_bend(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"g\.npz: .*{message}"):
        load_graph(write(tmp_path / "g.npz", **(PLAIN | changes)))


def test_truths_are_labels_and_numbers_are_names(tmp_path: Path) -> None:
    graph = load_graph(write(tmp_path / "g.npz", **PLAIN | {"y": np.array([True, False, True])}, class_names=[7, 8]))
    assert graph.y.tolist() == [1, 0, 1]
    assert graph.class_names == ("7", "8")


def raw_npz(path: Path, header: str, content: bytes, copies: int = 1) -> Path:
    """The plain arrays, with a key ``x`` whose header says what it likes."""
    write(path, **{key: PLAIN[key] for key in ("edge_index", "y")})
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + content
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(copies):
            archive.writestr("x.npy", data)
    return path


@pytest.mark.parametrize(
    ("shape", "content", "message"),
    [
        ("(3, 2)", bytes(40), "header states another size than it has"),
        ("(1000000, 1000000)", bytes(48), "header states another size than it has"),
        ("(True, 2)", bytes(16), "its shape is not whole numbers"),
        ("(-3, -2)", bytes(48), "its shape is not whole numbers"),
        ("(" * 300, bytes(48), "cannot be read"),
        ("(20000000, 8)", 20_000_000 * 64, "unfolds to 1.2 GiB, more than 100 times the size of the file; if that"),
    ],
)
def test_sizes_are_read_before_anything_is_unfolded(
    shape: str, content: bytes | int, message: str, tmp_path: Path
) -> None:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n"
    path = raw_npz(tmp_path / "g.npz", header, bytes(content))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=rf"g\.npz: key 'x' .*{message}"):
            load_graph(path)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_what_does_not_fit_into_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedgkd.data.files.available_memory", lambda: 10)
    monkeypatch.setattr("fedgkd.data.files._HARMLESS", 10)
    with pytest.raises(DataError, match=r"key 'x' holds 0\.0 GiB and needs 0\.0 GiB of memory, but only"):
        load_graph(write(tmp_path / "g.npz", **PLAIN))


def test_a_key_that_is_there_twice(tmp_path: Path) -> None:
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), }\n"
    with pytest.raises(DataError, match="key 'x' stands there twice"):
        load_graph(raw_npz(tmp_path / "g.npz", header, bytes(48), copies=2))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "g.npz")
    with pytest.raises(DataError, match=r"g\.npz: cannot be read \(it is not a file\)"):
        load_graph(tmp_path / "g.npz")


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="File name too long"):
        load_graph(tmp_path / ("x" * 300))


def test_adjacency_and_attributes_are_of_one_size(tmp_path: Path) -> None:
    parts = {"data": np.ones(1), "indices": np.array([0]), "indptr": np.array([0, 1, 1]), "shape": np.array([2, 2])}
    arrays = {f"{matrix}_{part}": value for matrix in ("adj", "attr") for part, value in parts.items()}
    labels = np.array([0, 1])
    assert load_graph(write(tmp_path / "g.npz", **arrays, labels=labels)).num_nodes == 2
    changed = arrays | {"adj_shape": np.array([2, 3])}
    with pytest.raises(DataError, match=r"'adj_shape' must be \(2, 2\).*not \(2, 3\)"):
        load_graph(write(tmp_path / "g.npz", **changed, labels=labels))
    with pytest.raises(DataError, match="key 'adj_data' holds a NaN"):
        load_graph(write(tmp_path / "g.npz", **arrays | {"adj_data": np.array([np.nan])}, labels=labels))
