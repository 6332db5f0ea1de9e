"""The paper's ablation studies: grids of runs in which one setting of FedGKD changes.

The motivating experiment is not a grid; it has a module of its own (:mod:`fedgkd.experiments.motivation`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedgkd.algorithms.fedgkd import PRESETS
from fedgkd.atomic import atomic_write_text
from fedgkd.collaboration import KERNELS
from fedgkd.distillation import TASK_FEATURES
from fedgkd.errors import RunError, SettingError
from fedgkd.experiments.grid import Method
from fedgkd.experiments.search_spaces import SEARCH_SPACES
from fedgkd.settings import suggest

MOTIVATION = "motivation"

CLIENTS = {"non-overlapping": (5, 10, 20), "overlapping": (10, 30, 50), "louvain": (5, 10, 20)}
"""The numbers of clients that the paper looks at."""


@dataclass(frozen=True)
class Study:
    """A setting of FedGKD, the values that it takes, and algorithms that stand beside them."""

    setting: str
    values: tuple[Any, ...]
    beside: tuple[str, ...] = ()

    @property
    def methods(self) -> list[Method]:
        varied = [Method("fedgkd", {self.setting: value}) for value in self.values]
        return [*varied, *(Method(algorithm) for algorithm in self.beside)]


def _grid_of_the_paper(setting: str) -> Study:
    return Study(setting, SEARCH_SPACES["fedgkd"][setting])


STUDIES = {
    "preset": Study("preset", PRESETS, beside=("fedpub",)),
    "kernel": Study("kernel", KERNELS, beside=("fedpub",)),
    "gamma": _grid_of_the_paper("gamma"),
    "tau_s": _grid_of_the_paper("tau_s"),
    "tau": _grid_of_the_paper("tau"),
    "task_feature": Study("task_feature", TASK_FEATURES),
    "distillation": Study("distillation", ("dynamic", "static"), beside=("local",)),
}


def find_study(name: str) -> Study:
    if name not in STUDIES:
        known = (*STUDIES, MOTIVATION)
        hint = suggest(name, known) or f"; known are {', '.join(known)}"
        raise SettingError(f"there is no study '{name}'{hint}")
    return STUDIES[name]


def write_study(name: str, out: Path) -> None:
    """``study.json``, by which a report knows what the runs in that folder vary."""
    study = STUDIES[name]
    text = json.dumps({"study": name, "setting": study.setting, "values": study.values}, indent=2) + "\n"
    atomic_write_text(out / "study.json", text, RunError)
