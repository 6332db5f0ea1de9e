"""Dropout in which every client draws from a stream of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedgkd.clients import ClientBatch

_LEVELS = 1 << 16


class Dropout:
    """Zeroes entries of hidden features with probability ``rate`` and scales the others up.

    A client draws exactly as many numbers as it has nodes, so that padding and batch-mates change nothing. Sixteen
    random bits decide an entry: four entries per 64-bit draw instead of one, and a rate exact to 1/65,536.
    """

    def __init__(self, clients: ClientBatch, rate: float) -> None:
        self._streams: Sequence[np.random.Generator] = clients.streams("dropout") if rate else ()
        self._num_nodes = clients.graph.num_nodes
        self._device = clients.device
        self._dropped = round(rate * _LEVELS)

    def __call__(self, h: Tensor) -> Tensor:
        if not self._dropped:
            return h
        bits = np.full(h.shape, -_LEVELS // 2, np.int16)
        for row, nodes, draw in zip(bits, self._num_nodes, self._streams, strict=True):
            entries = nodes * row.shape[1]
            words = draw.bit_generator.random_raw(-(-entries // 4))
            row[:nodes] = words.view(np.int16)[:entries].reshape(nodes, -1)
        keep = torch.from_numpy(bits).to(self._device) >= self._dropped - _LEVELS // 2
        return h * keep.to(h.dtype).mul_(_LEVELS / (_LEVELS - self._dropped))
