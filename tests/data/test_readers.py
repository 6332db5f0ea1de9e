"""Readers of the published formats, on small files in those formats."""

import gzip
import pickle
import zipfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from fedgkd.data.graph import Graph
from fedgkd.data.readers import read_amazon, read_linqs, read_ogb, read_planetoid
from fedgkd.errors import DataError
from tests.data.archives import write_ogb

# Where numpy, scipy and Python keep these classes today, and where they did when Planetoid was published.
_MOVED = {
    b"cnumpy._core.multiarray\n": b"cnumpy.core.multiarray\n",
    b"cscipy.sparse._csr\n": b"cscipy.sparse.csr\n",
    b"cbuiltins\n": b"c__builtin__\n",
}


def _old_pickle(content: object) -> bytes:
    dumped = pickle.dumps(content, protocol=3)
    for now, then in _MOVED.items():
        dumped = dumped.replace(now, then)
    return dumped


@pytest.fixture
def planetoid(tmp_path: Path) -> list[Path]:
    """Nodes 0-2 in allx; test.index names 5 then 3, so 4 has neither features nor label."""
    parts = {
        "allx": _old_pickle(sp.csr_matrix([[1.0, 0], [0, 2], [3, 0]], dtype=np.float32)),
        "ally": _old_pickle(np.array([[1, 0], [0, 1], [1, 0]], dtype=np.int32)),
        "tx": _old_pickle(sp.csr_matrix([[0, 5.0], [0, 3]], dtype=np.float32)),
        "ty": _old_pickle(np.array([[0, 1], [1, 0]], dtype=np.int32)),
        "graph": _old_pickle(defaultdict(list, {0: [1, 1], 1: [0], 2: [5], 3: [], 4: [4], 5: [2]})),
        "test.index": b"5\n3\n",
    }
    for part, content in parts.items():
        (tmp_path / f"ind.tiny.{part}").write_bytes(content)
    return [tmp_path / f"ind.tiny.{part}" for part in parts]


def test_planetoid(planetoid: list[Path]) -> None:
    graph = read_planetoid(*planetoid)
    assert graph.x.toarray().tolist() == [[1, 0], [0, 2], [3, 0], [0, 3], [0, 0], [0, 5]]
    assert graph.y.tolist() == [0, 1, 0, 0, -1, 1]
    assert graph.edge_index.tolist() == [[0, 0, 1, 2, 4, 5], [1, 1, 0, 5, 4, 2]]
    assert graph.num_classes == 2


@pytest.mark.parametrize("damaged", range(6))
def test_planetoid_names_the_damaged_file(planetoid: list[Path], damaged: int) -> None:
    path = planetoid[damaged]
    path.write_bytes(b"x" if damaged == 5 else path.read_bytes()[:-20])
    with pytest.raises(DataError, match=path.name):
        read_planetoid(*planetoid)


@pytest.fixture
def linqs(tmp_path: Path) -> tuple[Path, Path]:
    content, cites = tmp_path / "cora.content", tmp_path / "cora.cites"
    content.write_text("31\t1\t0\t1\tTheory\n7\t0\t0\t0\tCase_Based\n105\t0\t1\t0\tTheory\n")
    cites.write_bytes(b"7\t31\r\n105\t7\r\n")
    return content, cites


def test_linqs(linqs: tuple[Path, Path]) -> None:
    graph = read_linqs(*linqs)
    assert graph.x.toarray().tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert graph.y.tolist() == [1, 0, 1]
    assert graph.edge_index.tolist() == [[1, 2], [0, 1]]


def test_linqs_names_an_unknown_paper(linqs: tuple[Path, Path]) -> None:
    linqs[1].write_text("7\t31\n8\t7\n")
    with pytest.raises(DataError, match=r"cora\.cites: .*paper 8 does not stand in cora\.content"):
        read_linqs(*linqs)


def test_linqs_truncated(linqs: tuple[Path, Path]) -> None:
    linqs[0].write_text(linqs[0].read_text()[:-10])
    with pytest.raises(DataError, match=r"cora\.content: not readable as published"):
        read_linqs(*linqs)


def _write_amazon(path: Path) -> None:
    adjacency, attributes = sp.csr_array([[0, 1, 0], [0, 0, 0], [1, 0, 0]]), sp.csr_array([[1.0, 0], [0, 1], [1, 1]])
    parts = {"adj": adjacency, "attr": attributes}
    arrays = {f"{key}_{part}": getattr(m, part) for key, m in parts.items() for part in ("data", "indices", "indptr")}
    np.savez(path, adj_shape=(3, 3), attr_shape=(3, 2), labels=[1, 0, 1], **arrays)


def test_amazon(tmp_path: Path) -> None:
    path = tmp_path / "amazon_electronics_photo.npz"
    _write_amazon(path)
    graph = read_amazon(path)
    assert graph.edge_index.tolist() == [[0, 0, 1, 2], [1, 2, 0, 0]]
    assert graph.y.tolist() == [1, 0, 1]
    assert graph.x.toarray().tolist() == [[1, 0], [0, 1], [1, 1]]


def test_amazon_truncated(tmp_path: Path) -> None:
    path = tmp_path / "amazon_electronics_photo.npz"
    _write_amazon(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"amazon_electronics_photo\.npz"):
        read_amazon(path)


def _ogb(tmp_path: Path, **changed: bytes | str) -> Graph:
    return read_ogb(write_ogb(tmp_path / "arxiv.zip", **changed))


def test_ogb(tmp_path: Path) -> None:
    graph = _ogb(tmp_path)
    expected = np.array([[0.5, -1.25], [0.1, 0], [-0.002, 3], [0.001, 2]], dtype=np.float32)
    assert isinstance(graph.x, np.ndarray)
    np.testing.assert_array_equal(graph.x, expected)
    assert graph.edge_index.tolist() == [[0, 2, 3, 1], [1, 1, 0, 0]]
    assert graph.y.tolist() == [1, 0, 2, 1]
    assert graph.num_classes == 3


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"edge": gzip.compress(b"0,1\n2,1\n")[:-9]}, r"arxiv\.zip: arxiv/raw/edge\.csv\.gz: not readable"),
        ({"edge": b"no gzip"}, r"arxiv\.zip: arxiv/raw/edge\.csv\.gz: not readable"),
        ({"node_feat": "1,2\n3\n"}, r"arxiv\.zip: arxiv/raw/node-feat\.csv\.gz: .*columns"),
        ({"num_node_list": "5\n"}, r"arxiv\.zip: num-node-list\.csv\.gz states 5 rows, but 4 are there"),
        ({"edge": "0,1\n2,9\n3,0\n1,0\n"}, r"arxiv\.zip: edge 1 \(2 → 9\) names a node that does not exist"),
    ],
)
def test_ogb_damaged(tmp_path: Path, changed: dict[str, bytes | str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        _ogb(tmp_path, **changed)


def test_ogb_truncated_or_incomplete_archive(tmp_path: Path) -> None:
    path = write_ogb(tmp_path / "arxiv.zip")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"arxiv\.zip: .*not readable"):
        read_ogb(path)
    with zipfile.ZipFile(path, "w"):
        pass
    with pytest.raises(DataError, match=r"arxiv\.zip: arxiv/raw/edge\.csv\.gz: not readable"):
        read_ogb(path)


@pytest.mark.parametrize(
    ("part", "content", "message"),
    [
        ("graph", {0: [1], 1: [0.5], 2: [], 3: [], 4: [], 5: []}, "nodes that are not whole numbers"),
        ("graph", {0: [1], 1: [0], 2: [], 3: [], 4: [], 7: []}, "nodes that are not numbered from 0"),
        ("graph", [1, 2], "no dictionary of lists"),
        ("ty", np.array([[1, 1], [1, 0]], np.int32), "names more than one class"),
        ("ty", np.array([[0, 2], [1, 0]], np.int32), "names more than one class"),
        ("ty", np.array([[0, 1]], np.int32), "4 rows of labels for 5 nodes"),
        ("ty", np.array([[0, 1], [1, 0]], complex), "values of type c16"),
        ("tx", sp.csr_matrix(np.ones((1, 2), np.float32)), "4 rows of features for 5 nodes"),
    ],
)
def test_planetoid_of_another_meaning(planetoid: list[Path], part: str, content: object, message: str) -> None:
    path = next(path for path in planetoid if path.suffix == f".{part}")
    path.write_bytes(_old_pickle(content))
    with pytest.raises(DataError, match=rf"ind\.tiny\.{part}: .*{message}"):
        read_planetoid(*planetoid)


def test_one_list_for_all_nodes_is_not_multiplied(planetoid: list[Path]) -> None:
    everybody = list(range(6)) * 100
    planetoid[4].write_bytes(_old_pickle(dict.fromkeys(range(6), everybody)))
    with pytest.raises(DataError, match=r"ind\.tiny\.graph: .*more neighbours than the file has bytes"):
        read_planetoid(*planetoid)


@pytest.mark.parametrize("lines", ["5\n5\n", "5\n9\n", "5\n-1\n", "5\n0\n"])
def test_planetoid_test_nodes_are_each_once_among_the_graphs(planetoid: list[Path], lines: str) -> None:
    planetoid[5].write_text(lines)
    with pytest.raises(DataError, match="test nodes that are not each once among the 6 of the graph"):
        read_planetoid(*planetoid)


def test_ogb_that_unfolds_without_end_or_states_several_numbers(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"arxiv\.zip: arxiv/raw/node-feat\.csv\.gz: .*unfolds to more than 100 times"):
        read_ogb(write_ogb(tmp_path / "arxiv.zip", node_feat=gzip.compress(bytes(2**28 + 1))))
    with pytest.raises(DataError, match=r"num-node-list\.csv\.gz states 4, 5 rows, but 4 are there"):
        read_ogb(write_ogb(tmp_path / "arxiv.zip", num_node_list="4\n5\n"))
    with pytest.raises(DataError, match=r"node-label\.csv\.gz must hold one label for each of 4 nodes"):
        read_ogb(write_ogb(tmp_path / "arxiv.zip", node_label="1\n"))


def test_linqs_that_numpy_would_cut(tmp_path: Path) -> None:
    content, cites = tmp_path / "cora.content", tmp_path / "cora.cites"
    cites.write_text("a\tb\n")
    for text, message in (
        (f"{'a' * 40}\t1\tx\nb\t0\ty\n", "a id of 32 characters or more"),
        ("a\t1\tx\na\t0\ty\n", "a paper stands there twice"),
        ("a\0\t1\tx\nb\t0\ty\n", "not a text file"),
        ("", "not readable as published"),
    ):
        content.write_text(text)
        with pytest.raises(DataError, match=rf"cora\.content: .*{message}"):
            read_linqs(content, cites)
