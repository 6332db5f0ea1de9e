from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fedgkd.algorithms import Algorithm, ServerRound
from fedgkd.algorithms.gcfl import GCFL, GCFLPlus, GCFLPlusSettings, GCFLSettings
from fedgkd.clients import Tensors
from fedgkd.collaboration import Mixing
from fedgkd.experiments.config import make_config
from fedgkd.experiments.directory import RunDirectory
from fedgkd.experiments.runner import Run, resume
from fedgkd.models import Network
from tests.graphs import planted_federation

NETWORK = Network("gcn", 2, 1, 1, 2)
CRITERIA: dict[str, Any] = {"eps_1": 0.5, "eps_2": 0.9}


def gcfl(clients: int, **settings: Any) -> Algorithm:
    return GCFL(GCFLSettings(**CRITERIA | settings), NETWORK, clients, seed=0)


def gcfl_plus(clients: int, **settings: Any) -> Algorithm:
    return GCFLPlus(GCFLPlusSettings(**CRITERIA | settings), NETWORK, clients, seed=0)


def server_step(
    algorithm: Algorithm,
    moves: list[float],
    round_: int = 21,
    cohort: list[int] | None = None,
    memory: Tensors | None = None,
) -> Mixing:
    """A server step where client k has moved by that much along the first convolution's first weight."""
    start = algorithm.model.initial(0, len(moves))
    downloads = {name: start[name] for name in algorithm.shared}
    uploads = {name: tensor.clone() for name, tensor in downloads.items()}
    uploads["convs.0.weight"][:, 0, 0] += torch.tensor(moves)
    uploads["nodes"] = torch.arange(1.0, len(moves) + 1).double().unsqueeze(1).expand(-1, 3)
    server = ServerRound(round_, tuple(cohort or range(len(moves))), downloads, memory or {})
    return algorithm.server_step(uploads, server)


def test_the_readout_stays_at_the_client() -> None:
    for algorithm in (gcfl(2), gcfl_plus(2)):
        assert algorithm.shared == ("convs.0.weight", "convs.0.bias")


def test_two_planted_groups_are_split_and_mixed_apart() -> None:
    mixing = server_step(gcfl(5), [1.0, -1.0, 1.0, -1.0, 1.0])
    third, half = 1 / 3, 1 / 2
    expected = [
        [third, 0, third, 0, third],
        [0, half, 0, half, 0],
        [third, 0, third, 0, third],
        [0, half, 0, half, 0],
        [third, 0, third, 0, third],
    ]
    torch.testing.assert_close(mixing.weights, torch.tensor(expected, dtype=torch.float64))
    assert mixing.memory["clusters"].tolist() == [0, 1, 0, 1, 0]
    assert mixing.facts["clusters"] == 2
    assert mixing.facts["splits"] == [{"cluster": 0, "stay": [0, 2, 4], "leave": [1, 3]}]
    assert mixing.facts["mean_update_norm"] == pytest.approx([0.2], rel=1e-4)
    assert mixing.facts["largest_update_norm"] == pytest.approx([1.0], rel=1e-4)
    json.dumps(mixing.facts)


@pytest.mark.parametrize(
    ("moves", "round_"),
    [
        ([1.0, -1.0, 1.0, -1.0, 1.0], 20),  # too early
        ([1.0, -1.0, 1.0, 1.0, 1.0], 21),  # the cluster still moves as one
        ([0.8, -0.8, 0.8, -0.8, 0.8], 21),  # nobody moves much
        ([1.0, -1.0], 21),  # two stay together
    ],
)
@pytest.mark.parametrize("make", [gcfl, gcfl_plus])
def test_without_the_criteria_nothing_splits(make: Any, moves: list[float], round_: int) -> None:
    memory = {"clusters": torch.zeros(len(moves), dtype=torch.int64), "norms": torch.ones(len(moves), 5).double()}
    mixing = server_step(make(len(moves)), moves, round_, memory=memory)
    assert mixing.facts["clusters"] == 1
    assert mixing.weights.tolist() == [[1 / len(moves)] * len(moves)] * len(moves)


def test_clusters_are_remembered_and_judged_apart() -> None:
    memory = {"clusters": torch.tensor([0, 1, 0, 1, 0])}
    mixing = server_step(gcfl(5), [1.0, -1.0, 1.0, -1.0, 1.0], memory=memory)
    assert mixing.memory["clusters"].tolist() == [0, 1, 0, 1, 0]
    assert mixing.facts["mean_update_norm"] == pytest.approx([1.0, 1.0], rel=1e-4)
    assert mixing.facts["splits"] == []


def test_a_clusters_mean_can_be_weighted_by_training_nodes() -> None:
    memory = {"clusters": torch.tensor([0, 1, 0])}
    mixing = server_step(gcfl(3, weighting="train_nodes"), [1.0, 1.0, 1.0], memory=memory)
    assert mixing.weights.tolist() == [[0.25, 0, 0.75], [0, 1, 0], [0.25, 0, 0.75]]


def test_only_the_clusters_of_those_present_change() -> None:
    mixing = server_step(gcfl(6), [1.0, -1.0, 1.0], cohort=[1, 3, 5])
    assert mixing.memory["clusters"].tolist() == [0, 0, 0, 1, 0, 0]
    assert mixing.weights.shape == (3, 3)


def test_gcfl_plus_cuts_by_the_sequences_of_norms_where_gcfl_cuts_by_direction() -> None:
    moves = [1.0, -1.0, 3.0, -3.0]
    assert server_step(gcfl(4), moves).memory["clusters"].tolist() == [0, 1, 0, 1]
    algorithm, memory = gcfl_plus(4), {}
    for round_ in range(30, 34):
        mixing = server_step(algorithm, moves, round_, memory=memory)
        memory = mixing.memory
        assert mixing.facts["splits"] == []  # four norms are not yet a sequence of five
    mixing = server_step(algorithm, moves, 34, memory=memory)
    assert mixing.memory["clusters"].tolist() == [0, 0, 1, 1]
    assert mixing.memory["norms"].isnan().all()  # everybody's sequence starts anew


def test_gcfl_plus_keeps_the_last_norms_of_those_present() -> None:
    algorithm = gcfl_plus(3, sequence_length=2)
    first = server_step(algorithm, [2.0, -4.0], round_=1, cohort=[0, 2])
    second = server_step(algorithm, [6.0, 3.0], round_=2, cohort=[1, 2], memory=first.memory)
    third = server_step(algorithm, [5.0], round_=3, cohort=[2], memory=second.memory)
    nan = torch.nan
    expected = torch.tensor([[nan, 2.0], [nan, 6.0], [3.0, 5.0]], dtype=torch.float64)
    torch.testing.assert_close(third.memory["norms"], expected, rtol=1e-4, atol=0, equal_nan=True)


def test_gcfl_plus_standardised_looks_at_the_course_of_the_norms_not_their_size() -> None:
    """Clients 0 and 1 fall, 2 and 3 rise, at two scales; by size alone the last one stands out."""
    norms = torch.tensor([[2.0, 1.0], [20.0, 10.0], [1.0, 2.0], [10.0, 20.0]], dtype=torch.float64)
    memory = {"clusters": torch.zeros(4, dtype=torch.int64), "norms": torch.cat([norms[:, :1], norms], dim=1)}
    moves = (norms[:, 1] * torch.tensor([1, 1, -1, -1])).tolist()
    for standardise, expected in ((False, [0, 0, 0, 1]), (True, [0, 0, 1, 1])):
        algorithm = gcfl_plus(4, sequence_length=3, standardise=standardise, eps_1=100.0)
        assert server_step(algorithm, moves, memory=memory).memory["clusters"].tolist() == expected


@pytest.mark.parametrize("name", ["gcfl", "gcfl_plus"])
def test_a_run_that_splits_is_resumed_with_its_clusters(name: str, tmp_path: Path) -> None:
    settings = {"algorithm": name, "hidden": 8, "threads": 1, "rounds": 8, "participation": 0.8}
    settings |= {"split_after": 1, "eps_1": 100.0, "eps_2": 0.0}
    if name == "gcfl_plus":
        settings["sequence_length"] = 2
    config = make_config(("test", settings))
    federation = planted_federation(5, groups=2)
    whole = Run(config, federation, None)
    whole.start()
    records = [whole.step() for _ in range(8)]
    assert records[0]["clusters"] == 1
    assert records[-1]["clusters"] > 2
    assert sum(len(record["splits"]) for record in records) == records[-1]["clusters"] - 1

    directory = RunDirectory(tmp_path / "run")
    stopped = Run(config, federation, directory)
    directory.create(config)
    stopped.start()
    for _ in range(4):
        stopped.step()
    resumed = resume(RunDirectory(tmp_path / "run"), federation)
    resumed.execute()
    assert resumed.memory.keys() == whole.memory.keys()
    for key, tensor in whole.memory.items():
        torch.testing.assert_close(resumed.memory[key], tensor, rtol=0, atol=0, equal_nan=True)
    for key, tensor in whole.models.items():
        assert resumed.models[key].equal(tensor)
