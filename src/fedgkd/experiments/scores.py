"""What is known of every client's models, and which round is the best by validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgkd.algorithms import REPORT
from fedgkd.clients import Tensors
from fedgkd.experiments.selection import SELECTED, prefers_received
from fedgkd.training.evaluation import SPLITS

Array = NDArray[np.float64]
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

    def update(self, uploads: Tensors, cohort: Sequence[int], select: str) -> None:
        """Take in a round's reports; ``select`` says by which model the clients are scored."""
        rows = list(cohort)
        report = {name: uploads[name].cpu().numpy() for name in (*REPORT, *SELECTED) if name in uploads}
        received = prefers_received(uploads).cpu().numpy()[:, None] & (select == "client")
        for kind, known in (("accuracy", self.accuracy), ("macro_f1", self.macro_f1)):
            for model in ("trained", "received"):
                known[model][rows] = report[f"{model}_{kind}"]
            own = report.get(f"selected_{kind}", report[f"trained_{kind}"])
            known["selected"][rows] = np.where(received, report[f"received_{kind}"], own)
        self.loss[rows] = report["loss"]
        self.nodes[rows] = report["nodes"]

    def only(self, clients: Sequence[int]) -> Scoreboard:
        """The same with nothing known of anybody else."""
        there = np.zeros(len(self.loss), np.bool_)
        there[list(clients)] = True

        def masked(values: Array) -> Array:
            return np.where(there.reshape(-1, *(1 for _ in values.shape[1:])), values, np.nan)

        accuracy, macro_f1 = (
            {model: masked(values) for model, values in known.items()} for known in (self.accuracy, self.macro_f1)
        )
        return Scoreboard(accuracy, macro_f1, masked(self.loss), masked(self.nodes))

    @property
    def everybody_known(self) -> bool:
        return not self.clients_never_present

    @property
    def clients_never_present(self) -> int:
        """How many have never reported anything; no mean has them."""
        return int((~np.isfinite(self.nodes).all(axis=1)).sum())

    @property
    def mean_loss(self) -> float:
        return _mean(self.loss)

    def mean(self, model: str, split: int) -> float:
        """Unweighted mean over the clients that have nodes in the split."""
        return _mean(self.accuracy[model][:, split])

    def mean_macro_f1(self, model: str, split: int) -> float:
        return _mean(self.macro_f1[model][:, split])

    def clients_without(self, split: int) -> int:
        """How many clients are left out of a mean because they have no node in the split."""
        return int((self.nodes[:, split] == 0).sum())

    def weighted_mean(self, model: str, split: int) -> float:
        """Mean over nodes: every client counts by its nodes in the split."""
        values, counts = self.accuracy[model][:, split], self.nodes[:, split]
        there = np.isfinite(values) & (counts > 0)
        return float(np.average(values[there], weights=counts[there])) if there.any() else float("nan")

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> Scoreboard:
        """From nested lists, with None for what is not known."""
        return cls(**{name: _as_arrays(value) for name, value in values.items()})


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

    def is_stale(self, round_: int, patience: int) -> bool:
        """Whether there has been no better one for so many rounds; a patience of 0 never ends."""
        return bool(patience and self.round and round_ - self.round >= patience)


def _mean(values: Array) -> float:
    there = values[np.isfinite(values)]
    return float(there.mean()) if len(there) else float("nan")


def _as_arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_arrays(entry) for key, entry in value.items()}
    return np.array(value, dtype=np.float64)
