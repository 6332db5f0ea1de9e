"""Graphs in ``.npz`` files: our own format, a user's plain arrays, and the keys of gnn-benchmark.

Nothing in a file is ever unpickled: an array of Python objects is refused by name.

=================  ==============================================================================
what               keys
=================  ==============================================================================
features           ``x`` (dense), or ``x_data x_indices x_indptr x_shape`` (compressed sparse rows)
edges              ``edge_index``, shape ``(2, edges)``; an undirected edge stands there both ways
labels             ``y`` (``-1``: unknown) and, optional, ``num_classes``
split, optional    ``train_mask val_mask test_mask``
names, optional    ``feature_names class_names node_names``
part of a graph    ``node_ids``, optional: the nodes' numbers in the whole graph
gnn-benchmark      ``adj_*``, ``attr_*`` (compressed sparse rows) and ``labels``; edges are read undirected
=================  ==============================================================================
"""

from __future__ import annotations

import lzma
import math
import os
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedgkd.atomic import atomic_write
from fedgkd.data.files import check_size, open_file
from fedgkd.data.graph import UNLABELLED, Features, Graph, as_integers, sparse_rows, undirected
from fedgkd.errors import DataError, quoted, shortened

MASKS = ("train_mask", "val_mask", "test_mask")
NAMES = ("feature_names", "class_names", "node_names")

_PARTS = ("data", "indices", "indptr", "shape")
_OUR_KEYS = {"x", *(f"x_{part}" for part in _PARTS), "edge_index", "y"}
_BENCHMARK_KEYS = {*(f"{matrix}_{part}" for matrix in ("adj", "attr") for part in _PARTS), "labels"}

# What numpy and zipfile raise on bytes that are not what they claim to be.
_UNREADABLE = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    OSError,
    EOFError,
    MemoryError,
    SyntaxError,
    RuntimeError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


def save_graph(path: Path, graph: Graph, *, node_ids: NDArray[np.int64] | None = None) -> None:
    """Write ``graph``; equal graphs give equal bytes, and a failed write leaves nothing behind.

    ``node_ids`` says, for a part of a larger graph, which of its nodes these are.
    """
    arrays: dict[str, Any] = _feature_arrays(graph.x)
    arrays |= {"edge_index": graph.edge_index, "y": graph.y, "num_classes": np.int64(graph.num_classes)}
    if graph.masks is not None:
        arrays |= dict(zip(MASKS, graph.masks, strict=True))
    for key in NAMES:
        names = getattr(graph, key)
        if names is not None:
            arrays[key] = np.array(names, dtype=np.str_)
    if node_ids is not None:
        arrays["node_ids"] = node_ids
    with atomic_write(path, DataError) as temporary, temporary.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **arrays)


def load_graph(
    path: Path, *, labels_required: bool = True, num_classes: int | None = None, name: str | None = None
) -> Graph:
    """Read a graph in any of the forms above.

    Args:
        path: The ``.npz`` file.
        labels_required: If False, a file without labels gives a graph whose nodes are all unlabelled.
        num_classes: The number of classes where the file does not state it; else one more than the largest label.
        name: What to call the graph in messages; the path by default.

    Raises:
        DataError: If the file is not readable or not a graph; the message names the file and the key.
    """
    with open_arrays(path) as file:
        x, edge_index = _structure(file)
        y = _labels(file, x.shape[0], labels_required)
        optional: dict[str, Any] = {key: file.optional(key) for key in MASKS}
        optional |= {key: file.names(key) for key in NAMES}
        stated = _stated_classes(file)
        if stated is None:
            stated = num_classes or int(y.max(initial=-1)) + 1
        if stated == 0:
            raise DataError(f"{path}: no node has a label, so the number of classes must be given ('num_classes')")
        return Graph(x, edge_index, y, stated, **optional, name=str(path) if name is None else name)


def load_node_ids(path: Path, num_nodes: int) -> NDArray[np.int64] | None:
    """The ``node_ids`` that :func:`save_graph` wrote, if any: a different one for each of ``num_nodes`` nodes."""
    with open_arrays(path) as file:
        found = file.optional("node_ids")
        if found is None:
            return None
        ids = as_integers(found, "key 'node_ids'", str(path))
        if ids.shape != (num_nodes,) or ids.min() < 0 or len(np.unique(ids)) < num_nodes:
            raise DataError(
                f"{path}: key 'node_ids' must hold a different number, 0 or larger, for each of {num_nodes} nodes"
            )
        return ids


def count_classes(path: Path) -> int:
    """How many classes a file states or shows, read without its features; 0 where it has no label."""
    with open_arrays(path) as file:
        stated = _stated_classes(file)
        return int(_labels(file, 0, required=False).max(initial=-1)) + 1 if stated is None else stated


class _Arrays:
    """The arrays of one open file, with errors that name file and key.

    An array is read only after its header has said a kind and a size that fit the file and the memory.
    """

    def __init__(self, path: Path, archive: zipfile.ZipFile, size: int) -> None:
        self.path = path
        self._archive = archive
        self._size = size
        self._needed = 0
        members = archive.infolist()
        names = [member.filename.removesuffix(".npy") for member in members]
        (name, times), *_ = Counter(names).most_common(1) or [("", 0)]
        if times > 1:
            raise DataError(f"{path}: key {quoted(name)} stands there twice")
        self._members = dict(zip(names, members, strict=True))

    def __contains__(self, key: str) -> bool:
        return key in self._members

    def __getitem__(self, key: str) -> NDArray[Any]:
        if key not in self._members:
            found = ", ".join(map(shortened, sorted(self._members))) or "nothing"
            raise DataError(f"{self.path}: key {quoted(key)} is missing; the file holds {found}")
        member = self._members[key]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # numpy's, of headers that Python 2 wrote
                with self._archive.open(member) as stream:
                    self._check_header(key, stream, member.file_size)
                with self._archive.open(member) as stream:
                    array: NDArray[Any] = npy.read_array(stream, allow_pickle=False)
                    stream.read()  # to the end, where the checksum is compared
                    return array
        except _UNREADABLE as problem:
            raise DataError(
                f"{self.path}: key {quoted(key)} cannot be read ({_first_line(problem)}); the file may be truncated"
            ) from problem

    def keys(self) -> set[str]:
        return set(self._members)

    def optional(self, key: str) -> NDArray[Any] | None:
        if key not in self:
            return None
        return self[key]

    def names(self, key: str) -> tuple[str, ...] | None:
        values = self.optional(key)
        if values is None:
            return None
        if values.ndim != 1 or values.dtype.kind not in "Uiu":
            raise DataError(f"{self.path}: key {quoted(key)} must be a list of names")
        return tuple(str(value) for value in values.tolist())

    def sparse(self, prefix: str) -> sp.csr_array:
        """The matrix whose parts are ``<prefix>_data``, ``_indices``, ``_indptr`` and ``_shape``."""
        data, indices, indptr, shape = (self[f"{prefix}_{part}"] for part in _PARTS)
        return sparse_rows(data, indices, indptr, shape, f"key '{prefix}_{{}}'", str(self.path))

    def _check_header(self, key: str, stream: IO[bytes], size: int) -> None:
        version = npy.read_magic(stream)
        if version > (2, 0):  # only arrays of records need more
            raise ValueError(f"an array file of version {version[0]}.{version[1]}")
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(stream)
        what = f"{self.path}: key {quoted(key)}"
        if dtype.hasobject:
            raise DataError(f"{what} is an array of Python objects, which is never unpickled; save numbers or text")
        if dtype.kind not in "biufU" or not dtype.itemsize:
            raise DataError(f"{what} holds {shortened(dtype)}, which is neither real numbers nor text")
        if any(type(length) is not int or length < 0 for length in shape):
            raise ValueError("its shape is not whole numbers")
        count = math.prod(shape)
        if stream.tell() + count * dtype.itemsize != size:
            raise ValueError("its header states another size than it has")
        self._needed += count * (dtype.itemsize + 8)  # as it is, and as the numbers that the graph keeps
        check_size(what, self._needed, size, self._size)


@contextmanager
def open_arrays(path: Path) -> Iterator[_Arrays]:
    """The arrays of a file, each read when it is asked for, after its header has said a kind and a size that fit."""
    with open_file(path) as stream:
        if stream.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
            raise DataError(f"{path}: holds a single array, not the named arrays of an .npz file")
        try:
            archive = zipfile.ZipFile(stream)
        except _UNREADABLE as problem:
            raise DataError(f"{path}: not a readable .npz file (broken, truncated or of another kind)") from problem
        with archive:
            yield _Arrays(path, archive, os.fstat(stream.fileno()).st_size)


def _structure(file: _Arrays) -> tuple[Features, NDArray[np.int64]]:
    ours, others = sorted(_OUR_KEYS & file.keys()), sorted(_BENCHMARK_KEYS & file.keys())
    if ours and others:
        raise DataError(
            f"{file.path}: holds keys of two kinds of graph files ({ours[0]}, {others[0]}); "
            "keep x, edge_index and y, or adj_*, attr_* and labels"
        )
    if others:
        adjacency, attributes = file.sparse("adj"), file.sparse("attr")
        num_nodes = attributes.shape[0]
        if adjacency.shape != (num_nodes, num_nodes):
            raise DataError(
                f"{file.path}: 'adj_shape' must be ({num_nodes}, {num_nodes}), as 'attr_shape' has {num_nodes} rows, "
                f"not {adjacency.shape}"
            )
        if not np.isfinite(adjacency.data).all():
            raise DataError(f"{file.path}: key 'adj_data' holds a NaN or infinite value")
        return attributes, undirected(np.vstack(adjacency.nonzero()), num_nodes)
    if {"x", "x_data"} <= file.keys():
        raise DataError(f"{file.path}: holds the features twice, as 'x' and as 'x_data'; keep one of them")
    x = file.sparse("x") if "x_data" in file else file["x"]
    if x.ndim != 2:
        raise DataError(f"{file.path}: key 'x' must be a table (nodes × features), not of shape {x.shape}")
    return x, file["edge_index"]


def _labels(file: _Arrays, num_nodes: int, required: bool) -> NDArray[np.int64]:
    key = "labels" if _BENCHMARK_KEYS & file.keys() else "y"
    if key not in file and not required:
        return np.full(num_nodes, UNLABELLED)
    return as_integers(file[key], f"key {quoted(key)}", str(file.path), or_truths=True)


def _stated_classes(file: _Arrays) -> int | None:
    stated = file.optional("num_classes")
    if stated is None:
        names = file.names("class_names")
        return None if names is None else len(names)
    if stated.size != 1 or not np.issubdtype(stated.dtype, np.integer):
        raise DataError(f"{file.path}: key 'num_classes' must be one whole number")
    return int(stated.item())


def _feature_arrays(x: Features) -> dict[str, Any]:
    if not isinstance(x, sp.csr_array):
        return {"x": x}
    return {"x_data": x.data, "x_indices": x.indices, "x_indptr": x.indptr, "x_shape": np.array(x.shape)}


def _first_line(problem: Exception) -> str:
    return shortened((str(problem) or type(problem).__name__).splitlines()[0])
