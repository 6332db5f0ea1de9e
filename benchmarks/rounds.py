"""One whole round: training, distillation, server step, evaluation, checkpoint; and where its time goes."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.ours import Ours

PARTS = ("training", "distillation", "server", "evaluation", "checkpoint", "other")


class Tally:
    """Seconds of consecutive rounds, by what they went into."""

    def __init__(self) -> None:
        self.rounds = 0
        self.total = 0.0
        self.parts = dict.fromkeys(PARTS, 0.0)
        self.longest_checkpoint = 0.0

    def add(self, took: float, parts: dict[str, float]) -> None:
        known = {name: parts.get(name, 0.0) for name in PARTS if name != "other"}
        for name, spent in {**known, "other": took - sum(known.values())}.items():
            self.parts[name] += spent
        self.longest_checkpoint = max(self.longest_checkpoint, known["checkpoint"])
        self.rounds += 1
        self.total += took

    def shares(self) -> dict[str, float]:
        return {name: spent / self.total for name, spent in self.parts.items()}

    def record(self) -> dict[str, Any]:
        return {
            "rounds": self.rounds,
            "shares": self.shares(),
            "checkpoint_seconds_per_round": self.parts["checkpoint"] / self.rounds,
            "longest_checkpoint": self.longest_checkpoint,
        }


def step(ours: Ours, tally: Tally | None = None) -> float:
    """One round, entered in the tally; what counts is its time less the checkpoint's, which not every round writes."""
    start = time.perf_counter()
    parts = ours.run.step()["seconds"]
    took = time.perf_counter() - start
    if tally is not None:
        tally.add(took, parts)
    return took - float(parts.get("checkpoint", 0.0))


def stretch(ours: Ours, tally: Tally, rounds: int, budget: float) -> None:
    """Go on until the tally has that many rounds, or ``budget`` seconds of them.

    Checkpoints are written as in any run: the first in round 1, then as often as their share of the time allows. Only
    all rounds from the first on show what they cost.
    """
    while tally.rounds < rounds and tally.total < budget:
        step(ours, tally)
