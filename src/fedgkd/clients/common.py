"""One graph that every client of a batch looks at with weights of its own.

The clients are folded into the channels, so that features and structure are held, and read, once.
"""

from __future__ import annotations

import scipy.sparse as sp
import torch
from torch import Tensor

from fedgkd.clients.graphs import Features
from fedgkd.clients.structure import SparseStructure, Structure


class CommonFeatures(Features):
    """Node features ``(nodes, features)`` that all clients have."""

    def __init__(self, x: Tensor) -> None:
        self._x = x

    def product(self, weight: Tensor) -> Tensor:
        return _unfold(self._x @ _fold(weight), len(weight))


class CommonStructure(Structure):
    """The edges of one graph for any number of clients."""

    def __init__(self, adjacency: sp.csr_array, device: torch.device | str) -> None:
        self._one = SparseStructure([adjacency], adjacency.shape[0], device)

    def gcn(self, h: Tensor) -> Tensor:
        return _unfold(self._one.gcn(_fold(h).unsqueeze(0))[0], len(h))

    def mean(self, h: Tensor) -> Tensor:
        return _unfold(self._one.mean(_fold(h).unsqueeze(0))[0], len(h))

    def total(self, h: Tensor) -> Tensor:
        return _unfold(self._one.total(_fold(h).unsqueeze(0))[0], len(h))

    def attend(self, h: Tensor, source: Tensor, target: Tensor, slope: float) -> Tensor:
        # Heads do not know of each other: every client's are further heads of the one graph.
        clients, nodes, heads, channels = h.shape
        by_head = h.transpose(0, 1).reshape(1, nodes, clients * heads, channels)
        result = self._one.attend(by_head, _fold(source).unsqueeze(0), _fold(target).unsqueeze(0), slope)
        return result.view(nodes, clients, heads, channels).transpose(0, 1)


def _fold(h: Tensor) -> Tensor:
    """From ``(clients, rows, channels)`` to ``(rows, clients · channels)``."""
    return h.transpose(0, 1).reshape(h.shape[1], -1)


def _unfold(h: Tensor, clients: int) -> Tensor:
    return h.view(len(h), clients, -1).transpose(0, 1)
