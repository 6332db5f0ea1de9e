"""The server step: one row-stochastic matrix over the clients, applied to the tensors that they share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedgkd.clients import Tensors


@dataclass(frozen=True)
class Mixing:
    """What the server decided in a round.

    Args:
        weights: ``(clients, clients)`` float64, rows sum to 1; row i says how client i's next model is mixed.
        relation, kernel: The matrices R and S behind it, where there are any; for the record.
        memory: What the server keeps for its next round, stored with the run.
        facts: What the record of the round says of it: plain values that JSON can hold.
    """

    weights: Tensor
    relation: Tensor | None = None
    kernel: Tensor | None = None
    memory: Tensors = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


def mix(weights: Tensor, uploads: Tensors) -> Tensors:
    """Every client's own mixture of all models: one matrix product per named tensor."""
    return {name: (weights.to(tensor.dtype) @ tensor.flatten(1)).view_as(tensor) for name, tensor in uploads.items()}


def uniform(clients: int) -> Tensor:
    """Everybody gets the plain mean."""
    return torch.full((clients, clients), 1.0 / clients, dtype=torch.float64)


def weighted(counts: Tensor) -> Tensor:
    """Everybody gets the mean weighted by ``counts``."""
    share = counts.double() / counts.double().sum()
    return share.expand(len(counts), -1).contiguous()
