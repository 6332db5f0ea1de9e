"""From the published files of a dataset to a graph as published: directed, with loops, in the file's own order."""

from __future__ import annotations

import gzip
import io
import json
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fedgkd.data.graph import UNLABELLED, Graph, sparse_rows
from fedgkd.data.npz import load_graph
from fedgkd.data.pickles import load_pickle
from fedgkd.errors import DataError, shortened

_TWITCH_FEATURES = 3_170
_DAMAGED = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    UserWarning,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)

_MOST_UNFOLDED = 100
_HARMLESS = 2**28

_LONGEST_ID, _LONGEST_LABEL = 32, 64


@contextmanager
def _reading(file: Path | str) -> Iterator[None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # numpy's word for a file without a line
            yield
    except _DAMAGED as problem:
        reason = shortened((str(problem) or type(problem).__name__).splitlines()[0])
        raise DataError(f"{file}: not readable as published ({reason}); the file may be truncated") from problem


def read_planetoid(allx: Path, ally: Path, tx: Path, ty: Path, graph: Path, test_index: Path) -> Graph:
    """Planetoid (Yang et al., 2016): row ``k`` of ``tx`` and ``ty`` is the node in line ``k`` of ``test.index``.

    CiteSeer's test range has 15 nodes that no line names: they get no features and no label.
    """
    with _reading(test_index):
        test_nodes = np.loadtxt(test_index, dtype=np.int64, ndmin=1, comments=None)
    features = [_load_sparse(path) for path in (allx, tx)]
    with _reading(graph):
        edge_index, num_nodes = _from_neighbour_lists(load_pickle(graph), graph.stat().st_size)
    with _reading(tx):
        nodes = np.concatenate([np.arange(features[0].shape[0]), test_nodes])
        _check_once(nodes, num_nodes)
        entries = sp.vstack(features).tocoo()
        if len(nodes) != entries.shape[0]:
            raise ValueError(f"{entries.shape[0]} rows of features for {len(nodes)} nodes")
        size = (num_nodes, entries.shape[1])
        x = sp.csr_array((entries.data, (nodes[entries.row], entries.col)), shape=size)
    with _reading(ty):
        one_hot = np.vstack([load_pickle(path) for path in (ally, ty)])
        if len(one_hot) != len(nodes):
            raise ValueError(f"{len(one_hot)} rows of labels for {len(nodes)} nodes")
        if not np.isin(one_hot, (0, 1)).all() or (one_hot.sum(axis=1) > 1).any():
            raise ValueError("a row of labels that names more than one class")
        y = np.full(num_nodes, UNLABELLED)
        y[nodes] = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), UNLABELLED)
    return Graph(x, edge_index, y, one_hot.shape[1], name=str(graph))


def _check_once(nodes: NDArray[np.int64], num_nodes: int) -> None:
    if nodes.ndim != 1 or len(np.unique(nodes)) < len(nodes) or not 0 <= nodes.min() <= nodes.max() < num_nodes:
        raise ValueError(f"test nodes that are not each once among the {num_nodes} of the graph")


def read_linqs(content: Path, cites: Path) -> Graph:
    """Cora as its makers (LINQS) publish it: ``id word… label`` per paper, ``cited citing`` per line."""
    for file in (content, cites):
        with _reading(file):
            if b"\0" in file.read_bytes():  # numpy would leave it out
                raise ValueError("not a text file")
    with _reading(content):
        with content.open(encoding="utf-8") as lines:
            num_words = next(lines, "").count("\t") - 1
        row = np.dtype(
            [("id", np.str_, _LONGEST_ID), ("words", np.uint8, (num_words,)), ("label", np.str_, _LONGEST_LABEL)]
        )
        papers = np.loadtxt(content, dtype=row, delimiter="\t", encoding="utf-8", ndmin=1, comments=None)
        if len(np.unique(papers["id"])) < len(papers):
            raise ValueError("a paper stands there twice")
        for field, longest in (("id", _LONGEST_ID), ("label", _LONGEST_LABEL)):
            if np.strings.str_len(papers[field]).max() == longest:  # numpy cuts what is longer
                raise ValueError(f"a {field} of {longest} characters or more")
    with _reading(cites):
        pairs = np.loadtxt(cites, dtype=np.str_, delimiter="\t", encoding="utf-8", ndmin=2, comments=None)
        order = np.argsort(papers["id"])
        ids = papers["id"][order]
        found = np.searchsorted(ids, pairs).clip(max=len(ids) - 1)
        unknown = pairs[ids[found] != pairs]
        if unknown.size:
            raise ValueError(f"paper {unknown[0]} does not stand in {content.name}")
    classes, y = np.unique(papers["label"], return_inverse=True)
    return Graph(sp.csr_array(papers["words"]), order[found].T, y, len(classes), name=str(content))


def read_amazon(path: Path) -> Graph:
    """Amazon Photo and Computers (Shchur et al., 2018), in the keys of gnn-benchmark."""
    return load_graph(path)


def read_ogb(archive: Path) -> Graph:
    """ogbn-arxiv as the Open Graph Benchmark publishes it: ``arxiv/raw/*.csv.gz`` in a zip file."""
    edges = _read_csv(archive, "edge", np.int64)
    x = _read_csv(archive, "node-feat", np.float32)
    labels = _read_csv(archive, "node-label", np.int64)
    if labels.shape != (len(x), 1):
        raise DataError(f"{archive}: node-label.csv.gz must hold one label for each of {len(x)} nodes")
    y = labels[:, 0]
    for member, found in (("num-node-list", len(x)), ("num-edge-list", len(edges))):
        stated = _read_csv(archive, member, np.int64).ravel().tolist()
        if stated != [found]:
            numbers = shortened(", ".join(map(str, stated)))
            raise DataError(f"{archive}: {member}.csv.gz states {numbers} rows, but {found} are there")
    return Graph(x, edges.T, y, int(y.max()) + 1, name=str(archive))


TWITCH_TASKS = ("mature", "views", "days")
"""What is asked of a streamer: explicit language, or views or days above the country's median."""


def read_twitch(task: str, features: Path, edges: Path, target: Path) -> Graph:
    """The streamers of one country (Rozemberczki et al., 2021): who follows whom, what they play, and one task.

    The features of a streamer are a set of numbers from 0 to 3,169.
    """
    with _reading(features):
        games = {int(node): set(numbers) for node, numbers in json.loads(features.read_bytes()).items()}
        nodes = np.repeat(list(games), [len(numbers) for numbers in games.values()])
        columns = np.fromiter(chain.from_iterable(games.values()), np.int64)
        x = sp.csr_array((np.ones(len(nodes), np.float32), (nodes, columns)), shape=(len(games), _TWITCH_FEATURES))
    with _reading(target):
        rows = np.genfromtxt(target, dtype=None, delimiter=",", names=True, encoding="ascii")
        values = np.empty(len(games), np.int64)
        values[rows["new_id"]] = rows[task]
    with _reading(edges):
        follows = np.loadtxt(edges, dtype=np.int64, delimiter=",", skiprows=1, ndmin=2)
    y = values if task == "mature" else (values > np.median(values)).astype(np.int64)
    return Graph(x, follows.T, y, 2, class_names=("no", "yes"), name=str(features))


def read_citation(path: Path) -> Graph:
    """A citation network of ACDNE (Shen et al., 2020), a MATLAB file; a paper with two labels counts as unlabelled."""
    from scipy.io import loadmat

    with _reading(path):
        content = loadmat(path, variable_names=("network", "attrb", "group"))
        labels = np.asarray(content["group"])
        y = np.where(labels.sum(axis=1) == 1, labels.argmax(axis=1), UNLABELLED)
        edges = np.stack(sp.coo_array(content["network"]).coords).astype(np.int64)
        x = sp.csr_array(content["attrb"], dtype=np.float32)
    return Graph(x, edges, y, labels.shape[1], name=str(path))


def _read_csv(archive: Path, name: str, dtype: type[Any]) -> NDArray[Any]:
    member = f"arxiv/raw/{name}.csv.gz"
    with (
        _reading(f"{archive}: {member}"),
        zipfile.ZipFile(archive) as members,
        members.open(member) as compressed,
        gzip.open(compressed) as content,
        io.TextIOWrapper(io.BufferedReader(_Bounded(content, members.getinfo(member).file_size)), "ascii") as lines,
        np.errstate(over="ignore"),  # what is too large becomes infinite, and is refused as that
    ):
        return np.loadtxt(lines, dtype=dtype, delimiter=",", ndmin=2, comments=None)


class _Bounded(io.RawIOBase):
    """What a packed file holds, up to the size that published files of its size have."""

    def __init__(self, content: BinaryIO | gzip.GzipFile, packed: int) -> None:
        self._content = content
        self._left = max(_HARMLESS, _MOST_UNFOLDED * packed)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read = self._content.read(len(buffer))
        self._left -= len(read)
        if self._left < 0:
            raise ValueError(f"it unfolds to more than {_MOST_UNFOLDED} times its size")
        buffer[: len(read)] = read
        return len(read)


def _load_sparse(path: Path) -> sp.csr_array:
    with _reading(path):
        matrix = load_pickle(path)
        return sparse_rows(matrix.data, matrix.indices, matrix.indptr, matrix.shape, "{}", str(path))


def _from_neighbour_lists(neighbours: Any, size: int) -> tuple[NDArray[np.int64], int]:
    """Edges and the number of nodes; a list that a file of ``size`` bytes names again and again is refused."""
    if not isinstance(neighbours, dict) or not all(isinstance(ends, list) for ends in neighbours.values()):
        raise ValueError("no dictionary of lists")
    degrees = np.fromiter(map(len, neighbours.values()), np.int64)
    if degrees.sum() > size:
        raise ValueError("more neighbours than the file has bytes")
    ends = list(chain.from_iterable(neighbours.values()))
    if not {type(node) for node in chain(neighbours, ends)} <= {int}:
        raise ValueError("nodes that are not whole numbers")
    sources, targets = np.array(list(neighbours), np.int64), np.array(ends, np.int64)
    if not np.array_equal(np.sort(sources), np.arange(len(sources))):
        raise ValueError("nodes that are not numbered from 0")
    return np.stack([np.repeat(sources, degrees), targets]), len(neighbours)
