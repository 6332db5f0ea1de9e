"""What the project promises, and whether the figures keep it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from benchmarks.workloads import WORKLOADS

FLOOR, ROUND, EVALUATION, CHECKPOINT, EXPONENT, SERVER, MEMORY, START = 1.5, 1.4, 0.15, 0.05, 1.1, 0.10, 4.0, 3.0


@dataclass(frozen=True)
class Verdict:
    """A figure against its limit.

    Args:
        at_least: On which side of the limit the figure should be.
        plausible: A figure below it is not believed: it says that something was not measured as meant.
    """

    what: str
    where: str
    value: float
    limit: float
    at_least: bool = False
    plausible: float = 0.0

    @property
    def verdict(self) -> str:
        if self.value < self.plausible:
            return "doubtful"
        met = self.value >= self.limit if self.at_least else self.value <= self.limit
        return "met" if met else "missed"

    def record(self) -> dict[str, Any]:
        return asdict(self) | {"verdict": self.verdict}


def judge(results: dict[str, Any]) -> list[Verdict]:
    """All promises for which there are figures."""
    return [
        *(verdict for name, work in results.get("workloads", {}).items() for verdict in _of_workload(name, work)),
        *_of_growth(results),
        *(verdict for name, run in results.get("memory", {}).items() for verdict in _of_memory(name, run)),
        *_of_start(results),
    ]


def _of_workload(name: str, work: dict[str, Any]) -> Iterator[Verdict]:
    speedup = WORKLOADS[name].speedup if name in WORKLOADS else None
    for algorithm, figures in work["algorithms"].items():
        where, epoch = f"{name}, {algorithm}", figures["epoch"]
        if speedup is not None:
            yield Verdict("plain / ours, local epoch", where, epoch["plain"] / epoch["ours"], speedup, at_least=True)
        yield Verdict("ours / floor, local epoch", where, epoch["ours"] / epoch["floor"], FLOOR, plausible=0.95)
        shares = figures["stretch"]["shares"]
        yield Verdict("evaluation, share of a round", where, shares["evaluation"], EVALUATION)
        yield Verdict("checkpoint, share of a round", where, shares["checkpoint"], CHECKPOINT, plausible=1e-4)
    rounds = {algorithm: figures["round"]["ours"] for algorithm, figures in work["algorithms"].items()}
    yield Verdict("FedGKD / FedAvg, round", name, rounds["fedgkd"] / rounds["fedavg"], ROUND)


def _of_growth(results: dict[str, Any]) -> Iterator[Verdict]:
    if "growth" in results:
        yield Verdict("exponent of nodes + edges", "4 synthetic sizes", results["growth"]["exponent"], EXPONENT)
    runs = results.get("clients", [])
    whole = [run for run in runs if "failed" not in run]
    # Each against the one before: against the first, where the graph is the bulk, anything would look slow to grow.
    for less, more in pairwise(whole):
        growth = (more["round"] / less["round"]) / (more["parameters"] / less["parameters"])
        yield Verdict("growth of time / of parameters", f"{less['clients']} to {more['clients']} clients", growth, 1.0)
    for run in whole:
        if run["clients"] == 50:
            yield Verdict("server step, share of a round", "50 clients", run["shares"]["server"], SERVER)
    if runs:
        yield Verdict("client numbers that run", "10 to 1,000 clients", len(whole), len(runs), at_least=True)


def _of_memory(name: str, run: dict[str, Any]) -> Iterator[Verdict]:
    if "failed" not in run:
        yield Verdict("peak / (features + parameters + optimiser)", name, memory_ratio(run), MEMORY)


def memory_ratio(run: dict[str, Any]) -> float:
    """Peak memory beyond that of a tiny run over what cannot be done without."""
    needed = sum(run["bytes"][part] for part in ("features", "parameters", "optimiser"))
    return float((run["bytes"]["peak"] - run["bytes"]["tiny_run"]) / needed)


def _of_start(results: dict[str, Any]) -> Iterator[Verdict]:
    if "start" in results:
        start = results["start"]
        yield Verdict(
            "start of the first round / import torch", "cached cora", start["run"] / start["import_torch"], START
        )
