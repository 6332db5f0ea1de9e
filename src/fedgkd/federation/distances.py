"""How far an upload may lie from what the site was sent: about as far as the others', and as its own before."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from fedgkd.clients import Tensors

FARTHEST = 10.0
"""Times the median. Honest sites stay below two, whatever their sizes: Adam's steps do not grow with a graph."""
_REMEMBERED = 20


def distance(upload: Tensors, download: Tensors) -> float:
    """Between the shared weights that a site got and those that it sent back."""
    return math.hypot(*(float((upload[name].double() - sent.double()).norm()) for name, sent in download.items()))


@dataclass
class Distances:
    """What is known of the sites' steps.

    Attributes:
        history: Those of each site that were taken, the latest last.
    """

    history: dict[str, list[float]] = field(default_factory=dict)

    def too_far(self, steps: Mapping[str, float]) -> dict[str, str]:
        """Which of a round's steps are not to be taken, and why."""
        if not steps:
            return {}
        in_round = median(steps.values())
        reasons = {}
        for site, step in steps.items():
            own = median(self.history.get(site) or [step])
            for usual, whose in ((in_round, "of this round"), (own, "of its own so far")):
                if 0 < FARTHEST * usual < step:
                    reasons[site] = (
                        f"moved the weights by {step:.3g}, more than {FARTHEST:g} times the median {whose}, {usual:.3g}"
                    )
        return reasons

    def take_down(self, steps: Mapping[str, float]) -> None:
        """Remember steps that were taken."""
        for site, step in steps.items():
            self.history[site] = [*self.history.get(site, []), step][-_REMEMBERED:]
