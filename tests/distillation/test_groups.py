"""FedGKD's relation finds who belongs together."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fedgkd.algorithms import ServerRound
from fedgkd.clients import Tensors
from fedgkd.collaboration import Mixing
from fedgkd.experiments.config import make_config
from fedgkd.experiments.runner import Run
from tests.graphs import planted_federation

CLIENTS, ROUNDS, SEEDS = 6, 10, range(3)
Relation = NDArray[np.float64]


def gap(relation: Relation, group: tuple[int, ...]) -> float:
    """Mean relation of two clients of one group, less that of two clients of different groups."""
    member = np.isin(np.arange(CLIENTS), group)
    same = member[:, None] == member[None, :]
    others = ~np.eye(CLIENTS, dtype=bool)
    return float(relation[same & others].mean() - relation[~same].mean())


def recovers_the_groups(relation: Relation) -> bool:
    """Related more within the groups than across, and no other way to halve the clients shows a wider gap."""
    halves = combinations(range(CLIENTS), CLIENTS // 2)
    return gap(relation, (0, 1, 2)) > 0 and max(halves, key=lambda half: gap(relation, half)) in ((0, 1, 2), (3, 4, 5))


def learnt_relation(seed: int) -> Relation:
    """FedGKD's R after some rounds, with its default task feature."""
    federation = planted_federation(CLIENTS, groups=2, seed=seed)
    settings = {"algorithm": "fedgkd", "rounds": ROUNDS, "hidden": 16, "threads": 1, "seed": seed}
    run = Run(make_config(("test", settings)), federation, None)
    relations: list[Relation] = []
    decide = run.algorithm.server_step

    def remember(uploads: Tensors, server: ServerRound) -> Mixing:
        mixing = decide(uploads, server)
        assert mixing.relation is not None
        relations.append(mixing.relation.numpy())
        return mixing

    run.algorithm.server_step = remember  # type: ignore[method-assign]
    run.start()
    run.execute()
    return relations[-1]


def random_relation(seed: int) -> Relation:
    values = np.random.default_rng(seed).uniform(size=(CLIENTS, CLIENTS))
    return np.triu(values, 1) + np.triu(values, 1).T + np.eye(CLIENTS)


def test_fedgkd_recovers_two_planted_groups() -> None:
    assert all(recovers_the_groups(learnt_relation(seed)) for seed in SEEDS)


def test_a_random_relation_would_not_pass() -> None:
    passed = [recovers_the_groups(random_relation(seed)) for seed in range(300)]
    assert np.mean(passed) < 0.2  # one in ten by chance, one in a thousand for all three seeds
