"""Named collections of federations, each run by one command."""

from __future__ import annotations

from collections.abc import Iterator

from fedgkd.data.datasets import count_members
from fedgkd.data.partition import check_clients
from fedgkd.experiments.grid import Place, Values

_FEW = {"partition": "shards", "clients": 20, "train_per_client": 20}

SUITES: dict[str, tuple[Values, ...]] = {
    "unlike": (
        *({"dataset": name, "concepts": concepts, **_FEW} for name in ("cora", "citeseer") for concepts in (2, 4)),
        {"dataset": "pubmed", "concepts": 3, **_FEW},
        {"dataset": "citation", "train_ratio": 0.01},
        {"dataset": "citation", "clients": 15, "train_ratio": 0.02, "val_ratio": 0.05},
        *({"dataset": name} for name in ("twitch", "twitch-views", "twitch-days", "twitch-tasks")),
    )
}
"""``unlike``: clients whose tasks differ, by convention, by country or by where papers were collected."""


def suite(name: str) -> list[Place]:
    """The federations of a suite."""
    return [_place(settings) for settings in SUITES[name]]


def _place(settings: Values) -> Place:
    dataset = settings["dataset"]
    clients = settings.get("clients", count_members(dataset))
    partition = settings.get("partition", "non-overlapping")
    check_clients(clients, partition, count_members(dataset))
    told = "-".join([dataset, *_differences(settings)])
    return Place(told, clients, partition, {**settings, "clients": clients, "partition": partition})


def _differences(settings: Values) -> Iterator[str]:
    """What a folder's name says of a federation beside its dataset, clients and partition."""
    words = {"concepts": "conventions", "train_per_client": "labels"}
    for name, word in words.items():
        if name in settings:
            yield f"{settings[name]}-{word}"
    if "train_ratio" in settings:
        yield f"{settings['train_ratio']:.0%}-labels".replace("%", "-percent")
