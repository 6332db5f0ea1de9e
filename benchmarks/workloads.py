"""The federations that are timed, and what the project promises for each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedgkd.data.federation import Federation
from fedgkd.experiments.config import RunSettings
from fedgkd.experiments.federations import build_federation

ARXIV = "num_nodes=169343 num_classes=40 num_features=128 average_degree=13.674 num_communities=200"
"""Sizes of ogbn-arxiv: 169,343 nodes, 1.17 M edges, 128 dense features, 40 classes."""


@dataclass(frozen=True)
class Workload:
    """A federation to time.

    Args:
        speedup: How many times faster than the plain loop a local epoch should be; None where nothing is promised.
        more_epochs: Epochs of the longer of the two trainings whose difference is timed, beyond the one of the shorter.
    """

    name: str
    dataset: str
    clients: int
    partition: str = "non-overlapping"
    synthetic: str = ""
    speedup: float | None = None
    more_epochs: int = 10

    def settings(self) -> dict[str, Any]:
        """The settings of ``fedgkd run`` that say which federation this is."""
        return {
            "dataset": self.dataset,
            "clients": self.clients,
            "partition": self.partition,
            "synthetic": self.synthetic,
        }

    def federation(self, data_dir: Path | None = None) -> Federation:
        return build_federation(RunSettings(**self.settings()), data_dir)


WORKLOADS = {
    work.name: work
    for work in (
        Workload("cora-10", "cora", 10, speedup=5.5),
        Workload("cora-50-overlapping", "cora", 50, "overlapping", speedup=7.0),
        Workload("citeseer-20", "citeseer", 20, speedup=10.0),
        Workload("photo-10", "photo", 10, speedup=5.5),
        Workload("computers-20", "computers", 20, speedup=3.0),
        Workload("pubmed-10", "pubmed", 10, speedup=3.0),
        Workload("arxiv-size-20", "synthetic", 20, synthetic=ARXIV, more_epochs=2),
    )
}

TINY = Workload("tiny", "synthetic", 4, synthetic="num_nodes=240 num_classes=3 num_features=16", more_epochs=2)
"""Not one of the workloads: it shows in a second or two that the benchmark itself works."""


def find_workloads(names: list[str]) -> list[Workload]:
    """Those of that name; all of them for no name."""
    known = WORKLOADS | {TINY.name: TINY}
    unknown = sorted(set(names) - known.keys())
    if unknown:
        raise SystemExit(f"error: there is no workload '{unknown[0]}'; known are {', '.join(known)}")
    return [known[name] for name in names] if names else list(WORKLOADS.values())
