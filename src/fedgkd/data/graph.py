"""The one graph type: numpy arrays, checked once when it is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fedgkd.errors import DataError, quoted, shortened

if TYPE_CHECKING:
    from torch_geometric.data import Data

Features = NDArray[np.float32] | sp.csr_array
Masks = tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]

UNLABELLED = -1

_REAL = "biuf"  # numpy's letters for true and false, whole numbers with and without a sign, and fractions

MOST_CLASSES = 100_000
"""A label beyond is a mistake, and tables of clients by classes would not fit into memory."""

MOST_FEATURES = 1_000_000
"""More columns are a mistake: a network has weights for each of them, however empty they are."""


@dataclass(frozen=True, eq=False)
class Graph:
    r"""An attributed graph for node classification.

    Args:
        x: Node features, ``(num_nodes, num_features)``; a dense float32 array or a ``scipy.sparse.csr_array``.
        edge_index: Directed edges ``(2, num_edges)``; an undirected edge is stored in both directions.
        y: Class of each node, ``-1`` where it is not known.
        num_classes: Number of classes :math:`C`; labels lie in :math:`[0, C)`.
        train_mask, val_mask, test_mask: Node splits: all three or none; they do not overlap.
        feature_names, class_names, node_names: Optional names, for people.
        name: What to call this graph in messages.

    Raises:
        DataError: If the parts do not fit together; the message names the first offending entry.
    """

    x: Features
    edge_index: NDArray[np.int64]
    y: NDArray[np.int64]
    num_classes: int
    train_mask: NDArray[np.bool_] | None = None
    val_mask: NDArray[np.bool_] | None = None
    test_mask: NDArray[np.bool_] | None = None
    feature_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    node_names: tuple[str, ...] | None = None
    name: str = "graph"

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "x", _as_features(self.x, self.name))
        set_field(self, "edge_index", as_integers(self.edge_index, "edge_index", self.name))
        set_field(self, "y", as_integers(self.y, "y", self.name, or_truths=True))
        self._check_shapes()
        self._check_values()
        self._check_masks()

    @property
    def num_nodes(self) -> int:
        return int(self.x.shape[0])

    @property
    def num_features(self) -> int:
        return int(self.x.shape[1])

    @property
    def num_edges(self) -> int:
        """Number of directed edges."""
        return int(self.edge_index.shape[1])

    @property
    def is_sparse(self) -> bool:
        return sp.issparse(self.x)

    @property
    def masks(self) -> Masks | None:
        """Train, validation and test mask, or None where the graph has no split."""
        if self.train_mask is None or self.val_mask is None or self.test_mask is None:
            return None
        return self.train_mask, self.val_mask, self.test_mask

    def with_masks(self, masks: Masks) -> Graph:
        train, val, test = masks
        return replace(self, train_mask=train, val_mask=val, test_mask=test)

    def adjacency(self) -> sp.csr_array:
        """The adjacency matrix with 0/1 entries (parallel edges count once)."""
        n = self.num_nodes
        source, target = self.edge_index
        matrix = sp.csr_array((np.ones(len(source), np.float32), (source, target)), shape=(n, n))
        matrix.sum_duplicates()
        matrix.data[:] = 1.0
        return matrix

    def simple_adjacency(self) -> sp.csr_array:
        """The adjacency matrix of the undirected simple graph: symmetric, 0/1 entries, no self-loops."""
        n = self.num_nodes
        source, target = undirected(self.edge_index, n)
        proper = source != target
        ones = np.ones(int(proper.sum()), np.float32)
        return sp.csr_array((ones, (source[proper], target[proper])), shape=(n, n))

    def subgraph(self, nodes: NDArray[np.int64], name: str | None = None) -> Graph:
        """The induced subgraph; node ``k`` of it is ``nodes[k]`` of this graph, masks and names come along."""
        position = np.full(self.num_nodes, -1, np.int64)
        position[nodes] = np.arange(len(nodes))
        mapped = position[self.edge_index]
        masks = self.masks
        return Graph(
            x=self.x[nodes],
            edge_index=mapped[:, (mapped >= 0).all(axis=0)],
            y=self.y[nodes],
            num_classes=self.num_classes,
            train_mask=None if masks is None else masks[0][nodes],
            val_mask=None if masks is None else masks[1][nodes],
            test_mask=None if masks is None else masks[2][nodes],
            feature_names=self.feature_names,
            class_names=self.class_names,
            node_names=None if self.node_names is None else tuple(self.node_names[i] for i in nodes),
            name=self.name if name is None else name,
        )

    @classmethod
    def from_pyg(cls, data: Data, num_classes: int | None = None, name: str = "graph") -> Graph:
        """From a ``torch_geometric.data.Data`` (``x`` dense or a torch sparse tensor)."""
        for field in ("x", "edge_index", "y"):
            if getattr(data, field, None) is None:
                raise DataError(f"{name}: the PyG Data object has no {quoted(field)}")
        y = data.y.reshape(-1).cpu().numpy()
        if num_classes is None:
            num_classes = int(y.max()) + 1 if y.size else 0
        masks = [getattr(data, field, None) for field in ("train_mask", "val_mask", "test_mask")]
        train, val, test = (None if mask is None else mask.cpu().numpy() for mask in masks)
        return cls(
            _features_from_torch(data.x), data.edge_index.cpu().numpy(), y, num_classes, train, val, test, name=name
        )

    def to_pyg(self) -> Data:
        """As a ``torch_geometric.data.Data``; sparse features become a torch sparse COO tensor."""
        import torch

        try:
            from torch_geometric.data import Data
        except ImportError as error:
            raise DataError("to_pyg needs PyTorch Geometric: pip install 'fedgkd[pyg]'") from error
        x = _torch_features(self.x)
        data = Data(x=x, edge_index=torch.from_numpy(self.edge_index), y=torch.from_numpy(self.y))
        if self.masks is not None:
            data.train_mask, data.val_mask, data.test_mask = (torch.from_numpy(mask) for mask in self.masks)
        return data

    def _check_shapes(self) -> None:
        if self.num_nodes == 0:
            raise DataError(f"{self.name}: the graph is empty (no nodes)")
        if self.num_features == 0:
            raise DataError(f"{self.name}: the nodes have no features")
        if self.num_features > MOST_FEATURES:
            raise DataError(
                f"{self.name}: the nodes have {self.num_features:,} feature columns; at most {MOST_FEATURES:,} are "
                "possible, so keep those that matter"
            )
        if self.edge_index.ndim != 2 or self.edge_index.shape[0] != 2:
            raise DataError(f"{self.name}: edge_index must have shape (2, edges), not {self.edge_index.shape}")
        if self.y.shape != (self.num_nodes,):
            raise DataError(
                f"{self.name}: y must have one label for each of the {self.num_nodes} nodes, "
                f"but its shape is {self.y.shape}"
            )
        for field, names, size in (
            ("feature_names", self.feature_names, self.num_features),
            ("class_names", self.class_names, self.num_classes),
            ("node_names", self.node_names, self.num_nodes),
        ):
            if names is not None and len(names) != size:
                raise DataError(f"{self.name}: {field} has {len(names)} entries, expected {size}")
            if names is not None:
                _check_names(names, field, self.name)

    def _check_values(self) -> None:
        values = self.x.data if isinstance(self.x, sp.csr_array) else self.x
        if not np.isfinite(values).all():
            row, column = self._first_bad_feature()
            raise DataError(f"{self.name}: the features hold a NaN or infinite value (node {row}, column {column})")
        if self.num_classes < 2:
            raise DataError(f"{self.name}: node classification needs at least 2 classes, found {self.num_classes}")
        if self.num_classes > MOST_CLASSES:
            raise DataError(
                f"{self.name}: labels are numbers from 0 below the number of classes, {MOST_CLASSES:,} at most; "
                f"found {self.num_classes:,} classes (the largest label is that of node {int(self.y.argmax())})"
            )
        bad = (self.y < UNLABELLED) | (self.y >= self.num_classes)
        if bad.any():
            node = int(bad.argmax())
            raise DataError(
                f"{self.name}: node {node} has label {self.y[node]}, "
                f"outside the {self.num_classes} classes 0..{self.num_classes - 1}"
            )
        bad_edges = ((self.edge_index < 0) | (self.edge_index >= self.num_nodes)).any(axis=0)
        if bad_edges.any():
            edge = int(bad_edges.argmax())
            source, target = self.edge_index[:, edge]
            raise DataError(
                f"{self.name}: edge {edge} ({source} → {target}) names a node that does not exist; "
                f"the graph has nodes 0..{self.num_nodes - 1}"
            )

    def _first_bad_feature(self) -> tuple[int, int]:
        if isinstance(self.x, sp.csr_array):
            position = int((~np.isfinite(self.x.data)).argmax())
            row = int(np.searchsorted(self.x.indptr, position, side="right")) - 1
            return row, int(self.x.indices[position])
        row, column = np.argwhere(~np.isfinite(self.x))[0]
        return int(row), int(column)

    def _check_masks(self) -> None:
        given = {"train_mask": self.train_mask, "val_mask": self.val_mask, "test_mask": self.test_mask}
        missing = [field for field, mask in given.items() if mask is None]
        if len(missing) == 3:
            return
        if missing:
            raise DataError(f"{self.name}: {', '.join(missing)} missing: give all three masks or none")
        for field, mask in given.items():
            as_bool = np.asarray(mask)
            if as_bool.dtype != np.bool_ or as_bool.shape != (self.num_nodes,):
                raise DataError(
                    f"{self.name}: {field} must hold one true/false value for each of the {self.num_nodes} nodes"
                )
            object.__setattr__(self, field, as_bool)
        assert self.masks is not None
        train, val, test = self.masks
        twice = (train & val) | (train & test) | (val & test)
        if twice.any():
            raise DataError(f"{self.name}: node {int(twice.argmax())} is in more than one of train, val and test mask")
        unlabelled = (train | val | test) & (self.y == UNLABELLED)
        if unlabelled.any():
            raise DataError(f"{self.name}: node {int(unlabelled.argmax())} is in a mask but has no label")


def _check_names(names: Sequence[str], field: str, graph: str) -> None:
    if len(set(names)) < len(names):
        (name, _), *_ = Counter(names).most_common(1)
        raise DataError(f"{graph}: {field} holds {quoted(name)} twice; every name must be another one")
    if "" in names:
        raise DataError(f"{graph}: {field} holds an empty name")


def undirected(edge_index: NDArray[np.int64], num_nodes: int) -> NDArray[np.int64]:
    """Both directions of every edge, each once, sorted by source and target; self-loops stay."""
    source, target = edge_index.astype(np.int64)
    pairs = distinct(np.concatenate([source * num_nodes + target, target * num_nodes + source]))
    return np.stack(np.divmod(pairs, num_nodes))


def distinct(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The different numbers (0 or larger), sorted; np.unique builds a hash table, which is far slower for millions."""
    ordered = np.sort(numbers)
    return ordered[np.diff(ordered, prepend=-1) > 0]


def _as_csr(x: Any, name: str) -> sp.csr_array:
    matrix: sp.csr_array = sp.csr_array(x)
    check_real(matrix.data, "x", name)
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as that
        matrix = matrix.astype(np.float32)
        matrix.sum_duplicates()
    return matrix


def _as_features(x: Any, name: str) -> Features:
    if sp.issparse(x):
        return _as_csr(x, name)
    dense = np.asarray(x)
    if dense.ndim != 2 or dense.dtype.kind not in _REAL:
        raise DataError(
            f"{name}: x must be a table of numbers (nodes × features), "
            f"not an array of shape {dense.shape} and type {shortened(dense.dtype)}"
        )
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(dense, dtype=np.float32)


def check_real(values: NDArray[Any], field: str, name: str) -> None:
    """Raise an error that names the graph and the field if the values are not real numbers (or true and false)."""
    if values.dtype.kind not in _REAL:
        raise DataError(f"{name}: {field} must hold real numbers, not values of type {shortened(values.dtype)}")


def as_integers(
    values: Sequence[Any] | NDArray[Any], field: str, name: str, *, or_truths: bool = False
) -> NDArray[np.int64]:
    """``values`` as whole numbers, or an error that names the graph and the field.

    ``or_truths``: false and true count as 0 and 1.
    """
    array = np.asarray(values)
    if array.size == 0:
        return array.astype(np.int64)
    whole = array.dtype.kind in "iu" or (or_truths and array.dtype.kind == "b")
    if array.dtype.kind == "f":
        whole = bool((np.isfinite(array) & (array == np.round(array))).all())
    if not whole:
        raise DataError(f"{name}: {field} must hold whole numbers, not {shortened(array.dtype)}")
    if array.dtype.kind in "uf" and int(np.abs(array).max()) >= 2**63:
        raise DataError(f"{name}: {field} holds {shortened(np.abs(array).max())}, which is too large")
    return np.ascontiguousarray(array, dtype=np.int64)


def sparse_rows(data: Any, indices: Any, indptr: Any, shape: Any, what: str, name: str) -> sp.csr_array:
    """A matrix from its compressed sparse rows; every part is checked, for scipy reads beyond the end of wrong ones.

    Args:
        data, indices, indptr, shape: The parts.
        what: What they are called in messages, with a place for the part: ``key 'x_{}'``.
        name: What to call the graph in messages.
    """
    values = np.asarray(data)
    check_real(values, what.format("data"), name)
    columns = as_integers(indices, what.format("indices"), name)
    starts = as_integers(indptr, what.format("indptr"), name)
    sizes = as_integers(shape, what.format("shape"), name)
    if sizes.shape != (2,) or (sizes < 0).any():
        raise DataError(f"{name}: {what.format('shape')} must be two sizes, rows and columns")
    if values.ndim != 1 or columns.shape != values.shape:
        raise DataError(f"{name}: {what.format('data')} and {what.format('indices')} must be lists of one length")
    num_rows, num_columns = sizes.tolist()
    if columns.size and not 0 <= columns.min() <= columns.max() < num_columns:
        raise DataError(f"{name}: {what.format('indices')} names a column that does not exist")
    if starts.shape != (num_rows + 1,) or starts[0] != 0 or starts[-1] != len(values) or (np.diff(starts) < 0).any():
        raise DataError(f"{name}: {what.format('indptr')} must rise from 0 to {len(values)} in {num_rows:,} steps")
    if values.dtype.kind == "f" or values.dtype.byteorder == ">":  # scipy has no float16, and no foreign byte order
        values = values.astype(np.result_type(values, np.float32), copy=False)
    places = [
        given if np.asarray(given).dtype in (np.int32, np.int64) else read
        for given, read in ((indices, columns), (indptr, starts))
    ]
    return sp.csr_array((values, *places), shape=(num_rows, num_columns))


def _features_from_torch(x: Any) -> Features:
    import torch

    if x.layout == torch.strided:
        return _as_features(x.cpu().numpy(), "graph")
    entries = x.cpu().to_sparse_coo().coalesce()
    rows, columns = entries.indices().numpy()
    return sp.csr_array((entries.values().numpy(), (rows, columns)), shape=tuple(entries.shape), dtype=np.float32)


def _torch_features(x: Features) -> Any:
    import torch

    if not isinstance(x, sp.csr_array):
        return torch.from_numpy(x)
    entries = x.tocoo()
    indices = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
    return torch.sparse_coo_tensor(indices, torch.from_numpy(entries.data), x.shape, check_invariants=True).coalesce()
