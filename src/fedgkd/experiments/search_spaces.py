"""What ``fedgkd tune`` tries for every algorithm: plain data.

The grids of local training and of FedGKD are the paper's; the baselines share the former, so that all of them are tuned
alike, and add the one or two settings of their own that decide most; those grids are ours. Of what the paper tunes for
FedGKD, only how much a client keeps of its own model (τ_s) differs from graph to graph; a few trials would be lost in
the whole of its space.
GCFL's ε follow the norms of Adam's updates, which the run's records hold (see docs/algorithms/gcfl.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Space = Mapping[str, tuple[Any, ...]]
"""The values to try of every setting."""

TRAINING: Space = {"lr": (0.005, 0.01), "local_epochs": (1, 3, 5, 7)}

PAPER: Space = {
    **TRAINING,
    "proximal": (1e-5, 1e-3),
    "gamma": (0.001, 0.75, 1.5, 2.5, 5.0),
    "tau_s": (1.0, 3.0, 5.0, 7.0, 9.0),
    "tau": (0.05, 0.1, 0.25, 0.5, 0.75, 1.0),
}
"""All that the paper tries for FedGKD."""

_PROXIMAL: Space = {"proximal": PAPER["proximal"]}
_CLUSTERS: Space = {"eps_1": (0.5, 1.0, 2.0, 4.0), "eps_2": (1.0, 2.0, 4.0, 8.0)}

SEARCH_SPACES: dict[str, Space] = {
    "fedgkd": {**TRAINING, "tau_s": (1.0, 3.0)},
    "fedprox": {**TRAINING, **_PROXIMAL},
    "fedpub": {**TRAINING, **_PROXIMAL, "scale": (1.0, 3.0, 5.0, 10.0), "mask_l1": (1e-5, 1e-3)},
    "gcfl": {**TRAINING, **_CLUSTERS},
    "gcfl_plus": {**TRAINING, **_CLUSTERS, "standardise": (False, True)},
    "fedsage_plus": {**TRAINING, "neighbours": (2, 5), "hidden_share": (0.25, 0.5)},
}
"""By algorithm; one that is not listed gets :data:`TRAINING`."""


def search_space(algorithm: str) -> Space:
    return SEARCH_SPACES.get(algorithm, TRAINING)
