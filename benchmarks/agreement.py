"""Whether two contestants compute the same: nothing may win by doing something else."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.ours import Ours, configure
from benchmarks.plain import PlainFederation
from fedgkd.clients import Tensors
from fedgkd.data.federation import Federation

STEPS = 5
TOLERATED = 1e-3
"""Share of the weights that may differ: one activation that rounding moves over zero moves hundreds of weights."""


def disagreement(federation: Federation, algorithm: str, threads: int, settings: dict[str, Any]) -> float:
    """The share of weights on which ours and the plain loop differ after a few epochs without dropout."""
    config = configure(algorithm, threads, settings | {"dropout": 0.0})
    ours = Ours(config, federation)
    plain = PlainFederation(federation, config.method, ours.received, config.run.hidden, cached=False)
    uploads = ours.train(STEPS)
    plain.train(STEPS)
    return different_share(uploads, plain.weights(), config.method.lr)


def different_share(ours: Tensors, theirs: Tensors, lr: float) -> float:
    """The share of weights that differ by more than a tenth of a step."""
    away = torch.cat([(ours[name] - tensor).abs().flatten() > 0.1 * lr for name, tensor in theirs.items()])
    return away.float().mean().item()
