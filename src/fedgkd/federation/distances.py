"""How far an upload may lie from what the site was sent: about as far as all sites went when they began."""

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

    Steps are widest in a site's first rounds, and shrink a hundredfold while the training converges. So those are what
    a step is measured by, and not the other steps of its round: a site that comes late, or was away, still takes wide
    ones when the others hardly move, and would never be let in.

    Attributes:
        beginnings: The first steps of each site that were taken.
    """

    beginnings: dict[str, list[float]] = field(default_factory=dict)

    def too_far(self, steps: Mapping[str, float]) -> dict[str, str]:
        """Which of a round's steps are not to be taken, and why."""
        known = [step for beginning in self.beginnings.values() for step in beginning] or list(steps.values())
        usual = median(known) if known else 0.0
        return {
            site: f"moved the weights by {step:.3g}, more than {FARTHEST:g} times the median of the first rounds, "
            f"{usual:.3g}"
            for site, step in steps.items()
            if 0 < FARTHEST * usual < step
        }

    def take_down(self, steps: Mapping[str, float]) -> None:
        """Remember steps that were taken."""
        for site, step in steps.items():
            self.beginnings[site] = [*self.beginnings.get(site, []), step][:_REMEMBERED]
