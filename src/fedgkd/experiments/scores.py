"""What is known of every client's models, and which round is the best by validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgkd.clients import Tensors
from fedgkd.training.evaluation import SPLITS

Array = NDArray[np.float64]
VAL, TEST = SPLITS.index("val"), SPLITS.index("test")
MODELS = ("trained", "received", "selected")


@dataclass
class Scoreboard:
    """Last known accuracy and macro-F1 of all clients, by model: arrays ``(clients, splits)``, NaN where unknown.

    A client that does not take part keeps its scores, as it keeps its model.
    """

    accuracy: dict[str, Array]
    macro_f1: dict[str, Array]
    loss: Array
    nodes: Array

    @classmethod
    def empty(cls, clients: int) -> Scoreboard:
        def unknown() -> dict[str, Array]:
            return {model: np.full((clients, len(SPLITS)), np.nan) for model in MODELS}

        return cls(unknown(), unknown(), np.full(clients, np.nan), np.full((clients, len(SPLITS)), np.nan))

    def update(self, uploads: Tensors, cohort: Sequence[int], select: str) -> NDArray[np.bool_]:
        """Take in a round's reports; returns for whom of the cohort the received model is the selected one."""
        rows = list(cohort)
        report = {name: uploads[name].cpu().numpy() for name in _REPORTED}
        for model in ("trained", "received"):
            self.accuracy[model][rows] = report[f"{model}_accuracy"]
            self.macro_f1[model][rows] = report[f"{model}_macro_f1"]
        prefers_received = report["received_accuracy"][:, VAL] > report["trained_accuracy"][:, VAL]
        prefers_received &= select == "client"
        for kind in (self.accuracy, self.macro_f1):
            kind["selected"][rows] = np.where(prefers_received[:, None], kind["received"][rows], kind["trained"][rows])
        self.loss[rows] = report["loss"]
        self.nodes[rows] = report["nodes"]
        return prefers_received

    @property
    def everybody_known(self) -> bool:
        return bool(np.isfinite(self.nodes).all())

    def mean(self, model: str, split: int) -> float:
        """Unweighted mean over the clients that have nodes in the split."""
        return _mean(self.accuracy[model][:, split])

    def mean_macro_f1(self, model: str, split: int) -> float:
        return _mean(self.macro_f1[model][:, split])

    def weighted_mean(self, model: str, split: int) -> float:
        """Mean over nodes: every client counts by its nodes in the split."""
        values, counts = self.accuracy[model][:, split], self.nodes[:, split]
        there = np.isfinite(values) & (counts > 0)
        return float(np.average(values[there], weights=counts[there])) if there.any() else float("nan")

    def per_client(self, split: int, model: str = "selected") -> list[float | None]:
        return [_finite(value) for value in self.accuracy[model][:, split]]


_REPORTED = (
    "trained_accuracy",
    "trained_macro_f1",
    "received_accuracy",
    "received_macro_f1",
    "loss",
    "nodes",
)


@dataclass
class Best:
    """The best round so far by mean validation accuracy, with the figures of that round."""

    round: int = 0
    val: float = -1.0
    figures: dict[str, Any] = field(default_factory=dict)

    def offer(self, round_: int, val: float, figures: dict[str, Any]) -> bool:
        """Take the round if it is better than all before."""
        if not val > self.val:
            return False
        self.round, self.val, self.figures = round_, val, figures
        return True


def _mean(values: Array) -> float:
    there = values[np.isfinite(values)]
    return float(there.mean()) if len(there) else float("nan")


def _finite(value: float) -> float | None:
    """JSON has no NaN: what is not known is null."""
    return float(value) if np.isfinite(value) else None
