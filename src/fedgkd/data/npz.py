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

import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fedgkd.atomic import atomic_write
from fedgkd.data.graph import UNLABELLED, Features, Graph, as_integers, undirected
from fedgkd.errors import DataError, quoted

MASKS = ("train_mask", "val_mask", "test_mask")
NAMES = ("feature_names", "class_names", "node_names")

# What numpy and zipfile raise on bytes that are not what they claim to be.
_UNREADABLE = (
    ValueError,
    OSError,
    EOFError,
    MemoryError,
    SyntaxError,
    RuntimeError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
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
    with _open(path) as file:
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


def load_node_ids(path: Path) -> NDArray[np.int64] | None:
    """The ``node_ids`` that :func:`save_graph` wrote, if any."""
    with _open(path) as file:
        ids = file.optional("node_ids")
        return None if ids is None else as_integers(ids, "key 'node_ids'", str(path))


def count_classes(path: Path) -> int:
    """How many classes a file states or shows, read without its features; 0 where it has no label."""
    with _open(path) as file:
        stated = _stated_classes(file)
        return int(_labels(file, 0, required=False).max(initial=-1)) + 1 if stated is None else stated


class _Arrays:
    """The arrays of one open file, with errors that name file and key."""

    def __init__(self, path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.path = path
        self._arrays = arrays

    def __contains__(self, key: str) -> bool:
        return key in self._arrays

    def __getitem__(self, key: str) -> NDArray[Any]:
        if key not in self._arrays:
            found = ", ".join(sorted(self._arrays)) or "nothing"
            raise DataError(f"{self.path}: key {quoted(key)} is missing; the file holds {found}")
        try:
            return self._arrays[key]
        except _UNREADABLE as problem:
            if "allow_pickle" in str(problem):
                reason = "is an array of Python objects, which is never unpickled; save it as numbers or text"
            else:
                reason = f"cannot be read ({_first_line(problem)}); the file may be truncated"
            raise DataError(f"{self.path}: key {quoted(key)} {reason}") from problem

    def optional(self, key: str) -> NDArray[Any] | None:
        if key not in self:
            return None
        return self[key]

    def names(self, key: str) -> tuple[str, ...] | None:
        values = self.optional(key)
        return None if values is None else tuple(str(value) for value in values.ravel().tolist())

    def sparse(self, prefix: str) -> sp.csr_array:
        """The matrix whose parts are ``<prefix>_data``, ``_indices``, ``_indptr`` and ``_shape``."""
        data, indices, indptr, shape = (self[f"{prefix}_{part}"] for part in ("data", "indices", "indptr", "shape"))
        try:
            rows, columns = (int(size) for size in shape)
            matrix = sp.csr_array((data, indices, indptr), shape=(rows, columns))
            matrix.check_format(full_check=True)
        except (ValueError, TypeError) as problem:
            raise DataError(
                f"{self.path}: keys '{prefix}_*' are not a sparse matrix ({_first_line(problem)})"
            ) from problem
        return matrix


@contextmanager
def _open(path: Path) -> Iterator[_Arrays]:
    try:
        stream = path.open("rb")
    except FileNotFoundError as problem:
        raise DataError(f"{path}: no such file") from problem
    except OSError as problem:
        raise DataError(f"{path}: cannot be read ({problem.strerror or problem})") from problem
    with stream:  # opened here, since np.load leaves a broken file open
        try:
            opened = np.load(stream, allow_pickle=False)
        except _UNREADABLE as problem:
            raise DataError(f"{path}: not a readable .npz file (broken, truncated or of another kind)") from problem
        if not isinstance(opened, np.lib.npyio.NpzFile):
            raise DataError(f"{path}: holds a single array, not the named arrays of an .npz file")
        yield _Arrays(path, opened)


def _structure(file: _Arrays) -> tuple[Features, NDArray[np.int64]]:
    if "adj_data" in file:
        adjacency = file.sparse("adj")
        return file.sparse("attr"), undirected(np.vstack(adjacency.nonzero()), max(adjacency.shape))
    x = file.sparse("x") if "x_data" in file else file["x"]
    if x.ndim != 2:
        raise DataError(f"{file.path}: key 'x' must be a table (nodes × features), not of shape {x.shape}")
    return x, file["edge_index"]


def _labels(file: _Arrays, num_nodes: int, required: bool) -> NDArray[np.int64]:
    key = "labels" if "adj_data" in file else "y"
    if key not in file and not required:
        return np.full(num_nodes, UNLABELLED)
    return as_integers(file[key], f"key {quoted(key)}", str(file.path))


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
    return (str(problem) or type(problem).__name__).splitlines()[0]
