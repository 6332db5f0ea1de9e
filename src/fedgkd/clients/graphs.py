"""The graphs of a batch of clients, padded to one number of nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgkd.clients.blocks import BlockMatrix
from fedgkd.clients.encodings import structure_encoding
from fedgkd.clients.structure import SparseStructure, Structure
from fedgkd.data.graph import Graph

# Bag-of-words features are a few percent nonzero; above this share a dense product is the faster one.
SPARSE_SHARE = 0.15


class Features(ABC):
    """Node features that a first layer multiplies by each client's weights."""

    @abstractmethod
    def product(self, weight: Tensor) -> Tensor:
        """``(clients, nodes, features) @ (clients, features, k)``."""


class DenseFeatures(Features):
    def __init__(self, x: Tensor) -> None:
        self.x = x

    def product(self, weight: Tensor) -> Tensor:
        return torch.bmm(self.x, weight)


class ConstantFeatures(Features):
    """The given features of the clients' graphs, for which a graph convolution may do some work once and for all."""

    @abstractmethod
    def convolved(self, weight: Tensor) -> Tensor:
        r""":math:`\hat A X W` with the normalised adjacency of the clients' graphs."""

    @abstractmethod
    def convolved_transposed(self, grad: Tensor, onto: Tensor | None = None, share: float = 0.0) -> Tensor:
        r""":math:`(\hat A X)^\top G`: from the gradient of :meth:`convolved` to that of the weight.

        Added to ``share`` of ``onto``, in its memory, if that is given.
        """


class GivenDenseFeatures(ConstantFeatures):
    r"""Dense features: :math:`\hat A X` is computed once, and costs no more than :math:`X` to multiply by."""

    def __init__(self, graphs: Sequence[Graph], structure: SparseStructure, nodes: int, device: torch.device) -> None:
        self._graphs, self._structure, self._nodes, self._device = graphs, structure, nodes, device

    @cached_property
    def x(self) -> Tensor:
        return self._padded(map(_dense, self._graphs))

    @cached_property
    def _smoothed(self) -> Tensor:
        # Not from self.x, which a graph convolution never needs.
        blocks = zip(self._structure.normalised_blocks, self._graphs, strict=True)
        return self._padded(block @ _dense(graph) for block, graph in blocks)

    def _padded(self, arrays: Iterable[np.ndarray]) -> Tensor:
        return padded(arrays, len(self._graphs), self._nodes, np.float32, self._device)

    def product(self, weight: Tensor) -> Tensor:
        return torch.bmm(self.x, weight)

    def convolved(self, weight: Tensor) -> Tensor:
        return torch.bmm(self._smoothed, weight)

    def convolved_transposed(self, grad: Tensor, onto: Tensor | None = None, share: float = 0.0) -> Tensor:
        transposed = self._smoothed.transpose(1, 2)
        return torch.bmm(transposed, grad) if onto is None else onto.baddbmm_(transposed, grad, beta=share)


class SparseFeatures(ConstantFeatures):
    r"""Bags of words: :math:`\hat A X` would have several times the entries of :math:`X`, so they stay apart.

    Args:
        seen: The matrix without the columns for which no gradient is wanted, if they are the last ones.
    """

    def __init__(self, matrix: BlockMatrix, structure: SparseStructure, seen: BlockMatrix | None = None) -> None:
        self._matrix, self._structure, self._seen = matrix, structure, seen or matrix

    def product(self, weight: Tensor) -> Tensor:
        return self._matrix @ weight

    def convolved(self, weight: Tensor) -> Tensor:
        return self._structure.gcn(self.product(weight))

    def convolved_transposed(self, grad: Tensor, onto: Tensor | None = None, share: float = 0.0) -> Tensor:
        return self._seen.multiply_transposed(self._structure.normalised.multiply_transposed(grad), onto, share)


class JoinedFeatures(Features):
    """Node features beside hidden states, ``[x ‖ h]``, without a copy of either."""

    def __init__(self, x: Features, h: Tensor) -> None:
        self._x, self._h = x, h

    def product(self, weight: Tensor) -> Tensor:
        split = weight.shape[1] - self._h.shape[2]
        return self._x.product(weight[:, :split]) + torch.bmm(self._h, weight[:, split:])


class GraphView(Protocol):
    """What a model sees of a batch of graphs."""

    @property
    def features(self) -> Features: ...

    @property
    def structure(self) -> Structure: ...


class SmallGraphs(NamedTuple):
    """Graphs that exist only as features and structure, such as synthetic ones."""

    features: Features
    structure: Structure


class GraphBatch:
    """Features, structure, labels and splits of several clients; padded nodes belong to no split.

    Args:
        graphs: One graph per client, or one that pools the nodes of many.
        members: For a pool, the nodes in it that each client has and is scored by.
    """

    def __init__(
        self,
        graphs: Sequence[Graph],
        device: torch.device | str = "cpu",
        members: Sequence[NDArray[np.int64]] | None = None,
    ) -> None:
        self.graphs = tuple(graphs)
        self.device = torch.device(device)
        self._members = members
        self.num_nodes = [graph.num_nodes for graph in graphs]
        self.padded_nodes = max(self.num_nodes)
        self.num_classes = graphs[0].num_classes
        self.structure = SparseStructure([graph.adjacency() for graph in graphs], self.padded_nodes, device)
        self.y = self.padded([np.maximum(graph.y, 0) for graph in graphs], np.int64)
        masks = [graph.masks or (np.zeros(graph.num_nodes, bool),) * 3 for graph in graphs]
        self.splits = torch.stack([self.padded([mask[k] for mask in masks], np.bool_) for k in range(3)], dim=1)
        self._encodings: dict[tuple[int, int], Tensor] = {}

    @cached_property
    def sparse(self) -> bool:
        """Whether the features are held as a sparse matrix."""
        return are_sparse(self.graphs)

    @cached_property
    def features(self) -> ConstantFeatures:
        if not self.sparse:
            return GivenDenseFeatures(self.graphs, self.structure, self.padded_nodes, self.device)
        blocks = [sp.csr_array(graph.x) for graph in self.graphs]
        matrix = BlockMatrix(blocks, self.padded_nodes, self.graphs[0].num_features, self.device)
        return SparseFeatures(matrix, self.structure)

    @cached_property
    def columns(self) -> SeenColumns:
        """Which columns of the features its clients have."""
        return SeenColumns(self)

    @cached_property
    def present(self) -> Tensor:
        """Which nodes are real, not padding: ``(clients, nodes)``."""
        sizes = torch.tensor(self.num_nodes, device=self.device)
        return torch.arange(self.padded_nodes, device=self.device) < sizes.unsqueeze(1)

    @cached_property
    def scored(self) -> tuple[Tensor, Tensor, Tensor]:
        """Client, split and position in the flattened batch of every node that a client is scored by."""
        own = [row * self.padded_nodes + np.arange(nodes) for row, nodes in enumerate(self.num_nodes)]
        members = own if self._members is None else self._members
        client = np.repeat(np.arange(len(members)), [len(nodes) for nodes in members])
        position = torch.from_numpy(np.concatenate(members)).to(self.device)
        row, split = self.splits.transpose(1, 2).flatten(0, 1)[position].nonzero(as_tuple=True)
        return torch.from_numpy(client).to(self.device)[row], split, position[row]

    @cached_property
    def cells(self) -> Tensor:
        """Where a scored node counts in a flat table (client, split, true class, prediction), were 0 its prediction."""
        client, split, node = self.scored
        return ((client * self.splits.shape[1] + split) * self.num_classes + self.y.flatten()[node]) * self.num_classes

    @cached_property
    def num_scored(self) -> Tensor:
        """How many nodes each client has in each split: ``(clients, splits)``."""
        client, split, _ = self.scored
        clients, splits = len(self._members or self.graphs), self.splits.shape[1]
        return torch.bincount(client * splits + split, minlength=clients * splits).view(clients, splits)

    @cached_property
    def training(self) -> TrainingNodes:
        """The training nodes by themselves."""
        return TrainingNodes(self)

    def encoding(self, walk_steps: int, max_degree: int) -> Tensor:
        """Structure encodings of all nodes: ``(clients, nodes, walk_steps + max_degree)``, made when first needed."""
        sizes = (walk_steps, max_degree)
        if sizes not in self._encodings:
            arrays = [structure_encoding(graph, *sizes) for graph in self.graphs]
            self._encodings[sizes] = self.padded(arrays, np.float32)
        return self._encodings[sizes]

    def padded(self, arrays: Iterable[np.ndarray], dtype: type) -> Tensor:
        """One array per client, each a row per node, as one tensor ``(clients, nodes, …)`` with zeros for padding."""
        return padded(arrays, len(self.graphs), self.padded_nodes, dtype, self.device)


def are_sparse(graphs: Sequence[Graph]) -> bool:
    """Whether features are few enough nonzeros to be worth a sparse product."""
    stored = sum(_count_nonzero(graph) for graph in graphs)
    return stored <= SPARSE_SHARE * sum(graph.num_nodes * graph.num_features for graph in graphs)


def padded(arrays: Iterable[np.ndarray], clients: int, nodes: int, dtype: type, device: torch.device) -> Tensor:
    """One array per client, each a row per node, as one tensor ``(clients, nodes, …)`` with zeros for padding."""
    each = iter(arrays)
    first = next(each)
    out = np.zeros((clients, nodes, *first.shape[1:]), dtype)
    for row, array in zip(out, chain([first], each), strict=True):
        row[: len(array)] = array
    return torch.from_numpy(out).to(device)


class SeenColumns:
    """The columns of sparse features that a client has any entry in, apart from those it has not.

    A client that sees a third of all words has a data gradient for a third of its first weight matrix.

    Attributes:
        counts: How many columns each client has.
        most: The most that any client of the batch has.
        features: The features with every client's seen columns first; gradients are of the first ``most`` only.
    """

    def __init__(self, graph: GraphBatch) -> None:
        blocks = [sp.csr_array(each.x) for each in graph.graphs]
        empty = np.stack([np.bincount(x.indices, minlength=x.shape[1]) == 0 for x in blocks])
        order = np.argsort(empty, axis=1, kind="stable")
        self.counts: list[int] = (~empty).sum(axis=1).tolist()
        self.most = max(1, *self.counts)
        self._order = torch.from_numpy(order).to(graph.device)
        self._place = self._order.argsort(dim=1)
        kept = [sp.csr_array(x[:, seen]) for x, seen in zip(blocks, order[:, : self.most], strict=True)]
        self.features = SparseFeatures(
            BlockMatrix(kept, graph.padded_nodes, order.shape[1], graph.device),
            graph.structure,
            BlockMatrix(kept, graph.padded_nodes, self.most, graph.device),
        )

    def sort(self, client: int, weight: Tensor, out: Tensor) -> None:
        """Write a client's ``weight``, of ``(columns, k)``, to ``out`` with the rows of its seen columns first."""
        torch.index_select(weight, 0, self._order[client], out=out)

    def unsort(self, weights: Tensor) -> None:
        """Put what :meth:`sort` wrote for every client back into the common order, in place."""
        for place, weight in zip(self._place, weights, strict=True):
            weight.copy_(weight.index_select(0, place))


class TrainingNodes:
    r"""The training nodes of a batch, padded to one number per client.

    Attributes:
        counts: How many every client has.
        structure: The messages that they receive.
        y: Their labels ``(clients, training nodes)``.
        weights: What each contributes to a client's mean; zero for padding.
    """

    def __init__(self, graph: GraphBatch) -> None:
        nodes = [mask.nonzero()[0] for mask in graph.splits[:, 0].cpu().numpy()]
        self.structure = graph.structure.at(nodes)
        self.counts = self.structure.counts
        shape = (len(nodes), max(self.counts))
        y, weights = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        for client, rows in enumerate(nodes):
            y[client, : len(rows)] = np.maximum(graph.graphs[client].y[rows], 0)
            weights[client, : len(rows)] = 1 / max(len(rows), 1)
        self.y, self.weights = torch.from_numpy(y).to(graph.device), torch.from_numpy(weights).to(graph.device)


def _count_nonzero(graph: Graph) -> int:
    return int(graph.x.nnz) if isinstance(graph.x, sp.csr_array) else int(np.count_nonzero(graph.x))


def _dense(graph: Graph) -> np.ndarray:
    return graph.x.toarray() if isinstance(graph.x, sp.csr_array) else graph.x
