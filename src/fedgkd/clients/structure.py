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
    """Message passing over a batch of graphs; every argument and result is ``(clients, nodes, channels)``."""

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

    def gcn(self, h: Tensor) -> Tensor:
        return self.normalised @ h

    def gcn_at(self, nodes: Sequence[NDArray[np.int64]]) -> BlockMatrix:
        """The rows of :attr:`normalised` for some nodes of every client, padded to the same number."""
        blocks = [block[rows] for block, rows in zip(self.normalised_blocks, nodes, strict=True)]
        return BlockMatrix(blocks, max(len(rows) for rows in nodes), self._nodes, self._device)

    def mean(self, h: Tensor) -> Tensor:
        return self._mean @ h

    def total(self, h: Tensor) -> Tensor:
        return self._total @ h

    def attend(self, h: Tensor, source: Tensor, target: Tensor, slope: float) -> Tensor:
        clients, nodes, heads, channels = h.shape
        u, v = self._edges
        scores = torch.nn.functional.leaky_relu(source.reshape(-1, heads)[u] + target.reshape(-1, heads)[v], slope)
        largest = scores.new_full((clients * nodes, heads), -torch.inf)
        largest = largest.scatter_reduce(0, v.unsqueeze(1).expand_as(scores), scores.detach(), "amax")
        weights = (scores - largest[v]).exp()
        norm = weights.new_zeros(clients * nodes, heads).index_add(0, v, weights)
        messages = h.reshape(-1, heads, channels)[u] * (weights / norm[v]).unsqueeze(-1)
        summed = messages.new_zeros(clients * nodes, heads, channels).index_add(0, v, messages)
        return summed.view(clients, nodes, heads, channels)

    @cached_property
    def normalised(self) -> BlockMatrix:
        """What :meth:`gcn` multiplies by."""
        return self._matrix(self.normalised_blocks)

    @cached_property
    def normalised_blocks(self) -> list[sp.csr_array]:
        """The same, client by client."""
        return [gcn_normalised(a) for a in self._adjacencies]

    @cached_property
    def _mean(self) -> BlockMatrix:
        # Row v of the transpose lists the neighbours that send to v.
        incoming = [sp.csr_array(a.T) for a in self._adjacencies]
        return self._matrix([sp.csr_array(sp.diags_array(_inverse(a.sum(axis=1))) @ a) for a in incoming])

    @cached_property
    def _total(self) -> BlockMatrix:
        return self._matrix([sp.csr_array(a.T) for a in self._adjacencies])

    @cached_property
    def _edges(self) -> tuple[Tensor, Tensor]:
        """All edges and self-loops, numbered over the padded batch."""
        with_loops = [sp.coo_array(_with_self_loops(a)) for a in self._adjacencies]
        u = np.concatenate([i * self._nodes + a.row.astype(np.int64) for i, a in enumerate(with_loops)])
        v = np.concatenate([i * self._nodes + a.col.astype(np.int64) for i, a in enumerate(with_loops)])
        return torch.from_numpy(u).to(self._device), torch.from_numpy(v).to(self._device)

    def _matrix(self, blocks: Sequence[sp.csr_array]) -> BlockMatrix:
        return BlockMatrix(blocks, self._nodes, self._nodes, self._device)


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
