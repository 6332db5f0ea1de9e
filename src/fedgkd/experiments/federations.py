"""From a configuration to the federation that it names."""

from __future__ import annotations

from pathlib import Path

from fedgkd.data.federation import Federation
from fedgkd.data.own import open_graph, read_federation
from fedgkd.data.partition import partition
from fedgkd.experiments.config import RunSettings


def build_federation(settings: RunSettings, data_dir: Path | None = None) -> Federation:
    """The clients' graphs: own ones as they are, or a dataset split and then partitioned, all by the seed."""
    if settings.graphs is not None:
        folder = Path(settings.graphs)
        return read_federation(folder, label=settings.label, seed=settings.seed, ratios=settings.ratios)
    graph = open_graph(settings.dataset, data_dir, label=settings.label, **settings.synthetic_options)
    return partition(graph, settings.clients, settings.partition, settings.seed, ratios=settings.ratios)
