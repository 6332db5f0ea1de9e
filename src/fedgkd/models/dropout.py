"""Dropout in which every client draws from a stream of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedgkd.clients import ClientBatch, Structure
from fedgkd.clients.structure import SparseStructure
from fedgkd.models.layers import keep_where_above

_LEVELS = 1 << 16


class Dropout:
    """Zeroes entries of hidden features with probability ``rate`` and scales the others up.

    A client draws for the rows it has and for no padding, so that batch-mates change nothing. Sixteen random bits
    decide an entry: four entries per 64-bit draw instead of one, and a rate exact to 1/65,536.

    Attributes:
        scale: What the entries that stay are multiplied by.
    """

    def __init__(self, clients: ClientBatch, rate: float) -> None:
        self._streams: Sequence[np.random.Generator] = clients.streams("dropout") if rate else ()
        self._device = clients.device
        dropped = round(rate * _LEVELS)
        self._highest_dropped = dropped - _LEVELS // 2 - 1 if dropped else None
        self.scale = _LEVELS / (_LEVELS - dropped)

    def __call__(self, h: Tensor, structure: Structure) -> Tensor:
        """Dropout for the nodes that receive messages in ``structure``, which is of the clients' graphs."""
        if self._highest_dropped is None:
            return h
        assert isinstance(structure, SparseStructure)
        keep = self._levels(h.shape, structure.counts) > self._highest_dropped
        return h * keep.to(h.dtype).mul_(self.scale)

    def unscaled(self, h: Tensor, counts: Sequence[int]) -> Tensor:
        """As above in place, without the scaling and a gradient, where client i has ``counts[i]`` rows of ``h``."""
        if self._highest_dropped is None:
            return h
        return keep_where_above(h, self._levels(h.shape, counts).to(h.dtype), self._highest_dropped)

    def _levels(self, shape: torch.Size, counts: Sequence[int]) -> Tensor:
        """Sixteen random bits per entry of a client's rows; padding gets the lowest level, so that it is dropped."""
        bits = np.full(shape, -_LEVELS // 2, np.int16)
        for row, rows, draw in zip(bits, counts, self._streams, strict=True):
            entries = rows * row.shape[1]
            words = draw.bit_generator.random_raw(-(-entries // 4))
            row[:rows] = words.view(np.int16)[:entries].reshape(rows, row.shape[1])
        return torch.from_numpy(bits).to(self._device)
