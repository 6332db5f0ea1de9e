"""From a configuration to the federation that it names."""

from __future__ import annotations

from pathlib import Path

from fedgkd.data.datasets import DATASETS, load_dataset
from fedgkd.data.federation import Federation
from fedgkd.data.own import read_federation, read_graph
from fedgkd.data.partition import partition
from fedgkd.data.splits import random_split
from fedgkd.experiments.config import RunSettings


def build_federation(settings: RunSettings, data_dir: Path | None = None) -> Federation:
    """The clients' graphs: own ones as they are, or a dataset split and then partitioned, all by the seed."""
    if settings.graphs is not None:
        return read_federation(Path(settings.graphs), seed=settings.seed, ratios=settings.ratios)
    if settings.dataset not in DATASETS and Path(settings.dataset).exists():
        graph = read_graph(Path(settings.dataset))
    else:
        graph = load_dataset(settings.dataset, data_dir)
    graph = random_split(graph, settings.seed, settings.ratios)
    return partition(graph, settings.clients, settings.partition, settings.seed, dataset=graph.name)
