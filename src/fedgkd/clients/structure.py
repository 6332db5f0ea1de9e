"""How messages pass along the edges: sparse for the clients' graphs, dense for small synthetic ones.

Layers are written against :class:`Structure` and run on both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgkd.clients.blocks import BlockMatrix


class Structure(ABC):
    """Message passing over a batch of graphs; every argument and result is ``(clients, nodes, channels)``.

    Attributes:
        partial: Whether only some of the nodes receive messages, and have a row in the results.
    """

    partial = False

    def own(self, h: Tensor) -> Tensor:
        """The rows of the nodes that receive messages."""
        return h

    @abstractmethod
    def gcn(self, h: Tensor) -> Tensor:
        r"""Symmetric normalisation with self-loops: :math:`\hat D^{-1/2}(A+I)\hat D^{-1/2} h`."""

    @abstractmethod
    def mean(self, h: Tensor) -> Tensor:
        """The mean over the neighbours, zero where there are none."""

    @abstractmethod
    def total(self, h: Tensor) -> Tensor:
        """The sum over the neighbours."""

    @abstractmethod
    def attend(self, h: Tensor, source: Tensor, target: Tensor, slope: float) -> Tensor:
        """Softmax attention over neighbours and self.

        Args:
            h: ``(clients, nodes, heads, channels)``.
            source, target: Scores ``(clients, nodes, heads)``; an edge scores leaky_relu(source_u + target_v).
            slope: Negative slope of the leaky ReLU.
        """


class SparseStructure(Structure):
    """Constant graphs of a batch of clients, as block-diagonal sparse matrices made when first needed."""

    def __init__(self, adjacencies: Sequence[sp.csr_array], padded_nodes: int, device: torch.device | str) -> None:
        self._adjacencies = adjacencies
        self._nodes = padded_nodes
        self._device = device

    @property
    def counts(self) -> list[int]:
        """How many rows of the results are each client's, not padding."""
        return [a.shape[0] for a in self._adjacencies]

    @property
    def _rows(self) -> int:
        return self._nodes

    def at(self, nodes: Sequence[NDArray[np.int64]]) -> PartialStructure:
        """The same for some nodes of every client, which alone receive messages."""
        return PartialStructure(self, nodes)

    def gcn(self, h: Tensor) -> Tensor:
        return self.normalised @ h

    def mean(self, h: Tensor) -> Tensor:
        return self._mean @ h

    def total(self, h: Tensor) -> Tensor:
        return self._total @ h

    def attend(self, h: Tensor, source: Tensor, target: Tensor, slope: float) -> Tensor:
        clients, _, heads, channels = h.shape
        receivers = clients * self._rows
        u, v = self._edges
        target = self.own(target)
        scores = torch.nn.functional.leaky_relu(source.reshape(-1, heads)[u] + target.reshape(-1, heads)[v], slope)
        largest = scores.new_full((receivers, heads), -torch.inf)
        largest = largest.scatter_reduce(0, v.unsqueeze(1).expand_as(scores), scores.detach(), "amax")
        weights = (scores - largest[v]).exp()
        norm = weights.new_zeros(receivers, heads).index_add(0, v, weights)
        messages = h.reshape(-1, heads, channels)[u] * (weights / norm[v]).unsqueeze(-1)
        summed = messages.new_zeros(receivers, heads, channels).index_add(0, v, messages)
        return summed.view(clients, -1, heads, channels)

    @cached_property
    def normalised(self) -> BlockMatrix:
        """What :meth:`gcn` multiplies by."""
        return self._matrix(self.normalised_blocks)

    @cached_property
    def normalised_blocks(self) -> list[sp.csr_array]:
        """The same, client by client."""
        return [gcn_normalised(a) for a in self._adjacencies]

    @cached_property
    def mean_blocks(self) -> list[sp.csr_array]:
        # Row v of the transpose lists the neighbours that send to v.
        return [sp.csr_array(sp.diags_array(_inverse(a.sum(axis=1))) @ a) for a in self.total_blocks]

    @cached_property
    def total_blocks(self) -> list[sp.csr_array]:
        return [sp.csr_array(a.T) for a in self._adjacencies]

    @cached_property
    def looped_blocks(self) -> list[sp.csr_array]:
        """All edges and self-loops; row v lists who sends to v."""
        return [sp.csr_array(_with_self_loops(a).T) for a in self._adjacencies]

    @cached_property
    def _mean(self) -> BlockMatrix:
        return self._matrix(self.mean_blocks)

    @cached_property
    def _total(self) -> BlockMatrix:
        return self._matrix(self.total_blocks)

    @cached_property
    def _edges(self) -> tuple[Tensor, Tensor]:
        """Sender and receiver of all edges and self-loops, numbered over the padded batch."""
        edges = [sp.coo_array(a) for a in self.looped_blocks]
        u = np.concatenate([i * self._nodes + a.col.astype(np.int64) for i, a in enumerate(edges)])
        v = np.concatenate([i * self._rows + a.row.astype(np.int64) for i, a in enumerate(edges)])
        return torch.from_numpy(u).to(self._device), torch.from_numpy(v).to(self._device)

    def _matrix(self, blocks: Sequence[sp.csr_array]) -> BlockMatrix:
        return BlockMatrix(blocks, self._rows, self._nodes, self._device)


class PartialStructure(SparseStructure):
    """The messages that some nodes receive: arguments have a row for every node, results one for each of those."""

    partial = True

    def __init__(self, whole: SparseStructure, receivers: Sequence[NDArray[np.int64]]) -> None:
        super().__init__(whole._adjacencies, whole._nodes, whole._device)
        self._whole, self._receivers = whole, receivers

    @property
    def counts(self) -> list[int]:
        return [len(nodes) for nodes in self._receivers]

    @property
    def _rows(self) -> int:
        return max(self.counts)

    def own(self, h: Tensor) -> Tensor:
        return self._selection @ h

    @cached_property
    def receives(self) -> Tensor:
        """Whether a node is one of them: ``(clients, nodes)``."""
        rows = torch.ones(len(self._receivers), self._rows, 1, device=self._device)
        return self._selection.multiply_transposed(rows).squeeze(-1) > 0

    @cached_property
    def _selection(self) -> BlockMatrix:
        return self._matrix(self._part([sp.eye_array(a.shape[0], format="csr") for a in self._adjacencies]))

    @cached_property
    def normalised_blocks(self) -> list[sp.csr_array]:
        return self._part(self._whole.normalised_blocks)

    @cached_property
    def mean_blocks(self) -> list[sp.csr_array]:
        return self._part(self._whole.mean_blocks)

    @cached_property
    def total_blocks(self) -> list[sp.csr_array]:
        return self._part(self._whole.total_blocks)

    @cached_property
    def looped_blocks(self) -> list[sp.csr_array]:
        return self._part(self._whole.looped_blocks)

    def _part(self, blocks: Sequence[sp.csr_array]) -> list[sp.csr_array]:
        return [sp.csr_array(block[nodes]) for block, nodes in zip(blocks, self._receivers, strict=True)]


class DenseStructure(Structure):
    """Small graphs given as weights ``(clients, nodes, nodes)`` without self-loops; gradients reach the weights."""

    def __init__(self, adjacency: Tensor) -> None:
        self._adjacency = adjacency

    def gcn(self, h: Tensor) -> Tensor:
        return self._gcn @ h

    def mean(self, h: Tensor) -> Tensor:
        degree = self._adjacency.sum(dim=-1, keepdim=True)
        return (self._adjacency @ h) / degree.clamp(min=1.0)

    def total(self, h: Tensor) -> Tensor:
        return self._adjacency @ h

    def attend(self, h: Tensor, source: Tensor, target: Tensor, slope: float) -> Tensor:
        pairs = source.unsqueeze(1) + target.unsqueeze(2)  # (clients, v, u, heads)
        scores = torch.nn.functional.leaky_relu(pairs, slope)
        scores = scores - scores.detach().amax(dim=2, keepdim=True)
        weights = scores.exp() * self._with_self_loops.unsqueeze(-1)
        weights = weights / weights.sum(dim=2, keepdim=True)
        return torch.einsum("cvuh,cuhk->cvhk", weights, h)

    @cached_property
    def _with_self_loops(self) -> Tensor:
        return self._adjacency + torch.eye(self._adjacency.shape[-1], device=self._adjacency.device)

    @cached_property
    def _gcn(self) -> Tensor:
        scale = self._with_self_loops.sum(dim=-1).rsqrt()
        return scale.unsqueeze(-1) * self._with_self_loops * scale.unsqueeze(-2)


def gcn_normalised(adjacency: sp.csr_array) -> sp.csr_array:
    """Rows receive; degrees count incoming edges, as in PyTorch Geometric."""
    incoming = sp.csr_array(_with_self_loops(adjacency).T)
    scale = sp.diags_array(incoming.sum(axis=1) ** -0.5)
    return sp.csr_array(scale @ incoming @ scale, dtype=np.float32)


def _with_self_loops(adjacency: sp.csr_array) -> sp.csr_array:
    """Exactly one loop of weight one at every node, whether or not the graph had one there."""
    loops = sp.eye_array(adjacency.shape[0], dtype=np.float32, format="csr")
    return sp.csr_array(adjacency - sp.diags_array(adjacency.diagonal()) + loops)


def _inverse(values: NDArray[Any]) -> NDArray[np.float32]:
    inverse = np.zeros(len(values), np.float32)
    np.divide(1.0, values, out=inverse, where=values > 0)
    return inverse
