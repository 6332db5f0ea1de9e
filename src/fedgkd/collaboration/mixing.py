"""The server step: one row-stochastic matrix over the clients, applied to the tensors that they share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedgkd.clients import Tensors

# So many columns of some dozen models fit the processor's cache.
_COLUMNS = 1 << 14


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
    """Every client's own mixture of all models: one matrix product per named tensor.

    If all clients get the same mixture, it is computed once, and the rows of the result share their memory.
    """
    if bool((weights == weights[:1]).all()):
        once = {name: _product(weights[:1], tensor) for name, tensor in uploads.items()}
        return {name: tensor.expand(len(weights), *tensor.shape[1:]) for name, tensor in once.items()}
    return {name: _product(weights, tensor) for name, tensor in uploads.items()}


def _product(weights: Tensor, models: Tensor) -> Tensor:
    """``weights @ models``, a cache-sized part of the columns at a time: the models are few, but very long."""
    weights, flat = weights.to(models.dtype), models.flatten(1)
    mixed = flat.new_empty(len(weights), flat.shape[1])
    for begin in range(0, flat.shape[1], _COLUMNS):
        out = mixed[:, begin : begin + _COLUMNS]
        torch.addmm(out, weights, flat[:, begin : begin + _COLUMNS], beta=0, out=out)
    return mixed.view(len(weights), *models.shape[1:])


def with_own_share(partners: Tensor, own_share: float) -> Tensor:
    """Mixing weights in which every client keeps ``own_share`` of its own model, whoever its partners are.

    Args:
        partners: ``(clients, clients)``, how much each is worth to each; the diagonal does not count.
    """
    clients = len(partners)
    if clients == 1:
        return torch.ones_like(partners)
    others = partners.clone().fill_diagonal_(0.0)
    weights = (1.0 - own_share) * others / others.sum(dim=1, keepdim=True)
    return weights.fill_diagonal_(own_share)


def effective_donors(weights: Tensor) -> float:
    """How many clients' models make up the mixtures: the exponential of the entropy of the clients' mean shares."""
    share = weights.double().mean(dim=0)
    return float(torch.special.entr(share).sum().exp())


def uniform(clients: int) -> Tensor:
    """Everybody gets the plain mean."""
    return torch.full((clients, clients), 1.0 / clients, dtype=torch.float64)


def weighted(counts: Tensor) -> Tensor:
    """Everybody gets the mean weighted by ``counts``."""
    share = counts.double() / counts.double().sum()
    return share.expand(len(counts), -1).contiguous()
