"""The graphs of a batch of clients, padded to one number of nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedgkd.clients.blocks import BlockMatrix
from fedgkd.clients.structure import SparseStructure, Structure
from fedgkd.data.graph import Graph

# Bag-of-words features are a few percent nonzero; above this share a dense product is the faster one.
SPARSE_SHARE = 0.10


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


class SparseFeatures(Features):
    def __init__(self, matrix: BlockMatrix) -> None:
        self._matrix = matrix

    def product(self, weight: Tensor) -> Tensor:
        return self._matrix @ weight


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
    """Features, structure, labels and splits of several clients; padded nodes belong to no split."""

    def __init__(self, graphs: Sequence[Graph], device: torch.device | str = "cpu") -> None:
        self.graphs = tuple(graphs)
        self.device = torch.device(device)
        self.num_nodes = [graph.num_nodes for graph in graphs]
        self.padded_nodes = max(self.num_nodes)
        self.num_classes = graphs[0].num_classes
        self.structure: Structure = SparseStructure([graph.adjacency() for graph in graphs], self.padded_nodes, device)
        self.y = self._padded([np.maximum(graph.y, 0) for graph in graphs], np.int64)
        masks = [graph.masks or (np.zeros(graph.num_nodes, bool),) * 3 for graph in graphs]
        self.splits = torch.stack([self._padded([mask[k] for mask in masks], np.bool_) for k in range(3)], dim=1)

    @property
    def num_clients(self) -> int:
        return len(self.graphs)

    @cached_property
    def features(self) -> Features:
        stored = sum(_count_nonzero(graph) for graph in self.graphs)
        cells = sum(graph.num_nodes * graph.num_features for graph in self.graphs)
        if stored > SPARSE_SHARE * cells:
            return DenseFeatures(self._padded([_dense(graph) for graph in self.graphs], np.float32))
        blocks = [sp.csr_array(graph.x) for graph in self.graphs]
        return SparseFeatures(BlockMatrix(blocks, self.padded_nodes, self.graphs[0].num_features, self.device))

    @cached_property
    def train_nodes(self) -> tuple[Tensor, Tensor]:
        """Positions of all training nodes in the flattened batch, and the client of each."""
        train = self.splits[:, 0]
        return train.reshape(-1).nonzero().squeeze(1), train.nonzero()[:, 0]

    def _padded(self, arrays: Sequence[np.ndarray], dtype: type) -> Tensor:
        out = np.zeros((len(arrays), self.padded_nodes, *arrays[0].shape[1:]), dtype)
        for row, array in zip(out, arrays, strict=True):
            row[: len(array)] = array
        return torch.from_numpy(out).to(self.device)


def _count_nonzero(graph: Graph) -> int:
    return int(graph.x.nnz) if isinstance(graph.x, sp.csr_array) else int(np.count_nonzero(graph.x))


def _dense(graph: Graph) -> np.ndarray:
    return graph.x.toarray() if isinstance(graph.x, sp.csr_array) else graph.x
