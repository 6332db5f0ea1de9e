"""Whether two contestants compute the same: nothing may win by doing something else."""

from __future__ import annotations

from typing import Any

from benchmarks.ours import Ours, configure
from benchmarks.plain import PlainFederation
from fedgkd.data.federation import Federation

STEPS = 5


def disagreement(federation: Federation, algorithm: str, threads: int, settings: dict[str, Any]) -> float:
    """The largest difference of any weight between ours and the plain loop after a few epochs without dropout."""
    config = configure(algorithm, threads, settings | {"dropout": 0.0})
    ours = Ours(config, federation)
    plain = PlainFederation(federation, config.method, ours.received, config.run.hidden, cached=False)
    uploads = ours.train(STEPS)
    plain.train(STEPS)
    return max((uploads[name] - theirs).abs().max().item() for name, theirs in plain.weights().items())


def agree(difference: float, lr: float) -> bool:
    """Within a tenth of one step: Adam divides by the gradient's size, so rounding shows where there is hardly any."""
    return difference < 0.1 * lr
