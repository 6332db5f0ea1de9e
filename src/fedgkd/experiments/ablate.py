"""Ablation studies: grids of runs in which FedGKD's settings change, one at a time or several together.

The motivating experiment is not a grid; it has a module of its own (:mod:`fedgkd.experiments.motivation`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedgkd.atomic import atomic_write_text
from fedgkd.collaboration import KERNELS
from fedgkd.distillation import TASK_FEATURES
from fedgkd.errors import RunError, SettingError, quoted
from fedgkd.experiments.grid import Method, Values
from fedgkd.experiments.search_spaces import PAPER
from fedgkd.settings import suggest

MOTIVATION = "motivation"

CLIENTS = {"non-overlapping": (5, 10, 20), "overlapping": (10, 30, 50), "louvain": (5, 10, 20)}
"""The numbers of clients that the paper looks at."""


@dataclass(frozen=True)
class Study:
    """What changes about FedGKD, and algorithms that stand beside it.

    Args:
        setting: The setting that varies; ``variant`` where several do, and what varies has names of its own.
        variants: The settings of each variant, by its name; by its value, where one setting varies.
        beside: Algorithms to compare with.
        options: Settings of all runs, unless the user says otherwise.
    """

    setting: str
    variants: Mapping[Any, Values]
    beside: tuple[str, ...] = ()
    options: Values = field(default_factory=dict)

    def only(self, names: Collection[str]) -> Study:
        """The same with those of its values alone, as they are written."""
        known = {str(value): value for value in self.variants}
        for name in names:
            if name not in known:
                hint = suggest(name, known) or f"; it has {', '.join(known)}"
                raise SettingError(f"the study has no value {quoted(name)}{hint}")
        return replace(self, variants={known[name]: self.variants[known[name]] for name in names})

    @property
    def values(self) -> tuple[Any, ...]:
        return tuple(self.variants)

    @property
    def varied(self) -> dict[Any, Method]:
        return {name: Method("fedgkd", changes) for name, changes in self.variants.items()}

    @property
    def methods(self) -> list[Method]:
        return [*self.varied.values(), *map(Method, self.beside)]

    @property
    def facts(self) -> dict[str, Any]:
        """What a report has to know; where no setting tells the variants apart, their folders do."""
        facts: dict[str, Any] = {"setting": self.setting, "values": self.values}
        if self.setting == VARIANT:
            facts["variants"] = {method.label: name for name, method in self.varied.items()}
        return facts


def _one(setting: str, values: Iterable[Any], beside: tuple[str, ...] = ()) -> Study:
    return Study(setting, {value: {setting: value} for value in values}, beside)


def _grid_of_the_paper(setting: str) -> Study:
    return _one(setting, PAPER[setting])


def _kernel(kernel: str) -> Values:
    """The centred one has a τ of its own: with a small one it is the identity."""
    return {"kernel": kernel, "tau": 1.0} if kernel == "centred" else {"kernel": kernel}


VARIANT = "variant"

RELATION_VARIANTS: dict[str, Values] = {
    "default": {},
    "paper": {"preset": "paper"},
    "paper-averaged": {"preset": "paper", "relation_rounds": 100},
    "one-round": {"relation_rounds": 1},
    "ten-rounds": {"relation_rounds": 10},
    # A row of X0 has about the norm 1 on the paper's graphs, and √features; ours has 0.1.
    "x0-0.03": {"x0_scale": 0.03},
    "x0-1": {"x0_scale": 1.0},
    "m-5": {"nodes_per_class": 5},
    "no-step": {"distill_steps": 0},
    "5-steps": {"distill_steps": 5},
    "5-probes": {"nodes_per_class": 5, "x0_scale": 0.03, "distill_lr": 0.01},
    "step-0.01": {"distill_lr": 0.01},
    "step-1": {"distill_lr": 1.0},
    "10-draws": {"edge_draws": 10},
    "gamma-5": {"gamma": 5.0},
    "x-h": {"task_feature": "x_h", "relation": "correlation"},
    "h": {"task_feature": "h", "relation": "correlation"},
    "y": {"task_feature": "y", "relation": "correlation"},
    "x-h-both": {"task_feature": "x_h", "relation": "both"},
    "x-h-cosine": {"task_feature": "x_h", "relation": "cosine"},
    "h-cosine": {"task_feature": "h", "relation": "cosine"},
    "embedding": {"task_feature": "embedding", "relation": "cosine"},
    "weights": {"task_feature": "weights", "relation": "cosine"},
    "updates": {"task_feature": "updates", "relation": "cosine"},
    "cosine": {"relation": "cosine"},
    "correlation": {"relation": "correlation"},
    "centred": {"relation": "centred"},
    "local-kernel": _kernel("local"),
    "square-kernel": _kernel("square"),
    "centred-kernel": _kernel("centred"),
}
"""How FedGKD may relate the clients: what differs from our default, so that a value may well be the default's own."""

STUDIES = {
    # Not the best one, which has another backbone and scores another model.
    "preset": _one("preset", ("default", "paper"), beside=("fedpub",)),
    "kernel": Study("kernel", {kernel: _kernel(kernel) for kernel in KERNELS}, beside=("fedpub",)),
    "gamma": _grid_of_the_paper("gamma"),
    "tau_s": _grid_of_the_paper("tau_s"),
    "tau": _grid_of_the_paper("tau"),
    "task_feature": _one("task_feature", TASK_FEATURES),
    "distillation": _one("distillation", ("dynamic", "static"), beside=("local",)),
    "relation": Study(VARIANT, RELATION_VARIANTS, beside=("fedpub",), options={"rounds": 40, "patience": 0}),
}


def find_study(name: str) -> Study:
    if name not in STUDIES:
        known = (*STUDIES, MOTIVATION)
        hint = suggest(name, known) or f"; known are {', '.join(known)}"
        raise SettingError(f"there is no study {quoted(name)}{hint}")
    return STUDIES[name]


def write_study(name: str, out: Path) -> None:
    """``study.json``, by which a report knows what the runs in that folder vary."""
    text = json.dumps({"study": name} | STUDIES[name].facts, indent=2) + "\n"
    atomic_write_text(out / "study.json", text, RunError)
