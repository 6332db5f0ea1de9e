"""FedGKD's server: the relation that it remembers; and the values that the paper names."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fedgkd.algorithms import FedGKD, ServerRound
from fedgkd.algorithms.fedgkd import PAPER, PRESETS, UNDISTILLED, FedGKDSettings
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.collaboration import Mixing
from fedgkd.errors import SettingError
from fedgkd.experiments.config import make_config
from fedgkd.experiments.serving import serve
from fedgkd.models import Network
from tests.graphs import planted_federation

NETWORK = Network("gcn", 2, 1, 1, 2)


def task_features(angles: list[float]) -> Tensor:
    """One number pair per client: the cosine of two clients is that of the angle between them."""
    radians = torch.tensor(angles).deg2rad()
    return torch.stack([radians.cos(), radians.sin()], dim=1).unsqueeze(1)


def server_step(
    angles: list[float], cohort: list[int] | None = None, memory: Tensors | None = None, **settings: Any
) -> Mixing:
    algorithm = FedGKD(FedGKDSettings(relation="cosine", **settings), NETWORK, num_clients=3, seed=0)
    server = ServerRound(1, tuple(cohort or range(3)), memory=memory or {})
    return algorithm.server_step({"task_feature": task_features(angles)}, server)


def relations(mixing: Mixing) -> list[float]:
    """Of clients 0 and 1, 0 and 2, 1 and 2."""
    assert mixing.relation is not None
    first, second = torch.triu_indices(len(mixing.relation), len(mixing.relation), offset=1)
    return mixing.relation[first, second].tolist()


def test_a_round_on_its_own_remembers_nothing() -> None:
    mixing = server_step([0, 60, 90], relation_rounds=1)
    assert relations(mixing) == pytest.approx([0.5, 0.0, 0.75**0.5], abs=1e-6)
    assert mixing.memory == {}


def test_the_relation_is_the_mean_over_rounds() -> None:
    first = server_step([0, 60, 90], relation_rounds=10)
    second = server_step([0, 90, 90], memory=first.memory, relation_rounds=10)
    assert relations(first) == pytest.approx([0.5, 0.0, 0.75**0.5], abs=1e-6)
    assert relations(second) == pytest.approx([0.25, 0.0, (0.75**0.5 + 1) / 2], abs=1e-6)
    third = server_step([0, 90, 90], memory=second.memory, relation_rounds=10)
    assert relations(third) == pytest.approx([0.5 / 3, 0.0, (0.75**0.5 + 2) / 3], abs=1e-6)
    assert third.relation is not None
    assert third.relation.diagonal().tolist() == [1.0, 1.0, 1.0]


def test_old_rounds_fade_when_more_than_that_many_are_known() -> None:
    memory: Tensors = {}
    for _ in range(3):
        memory = server_step([0, 0, 0], memory=memory, relation_rounds=2).memory
    assert relations(server_step([0, 90, 90], memory=memory, relation_rounds=2)) == pytest.approx([0.5, 0.5, 1.0])


def test_only_pairs_that_took_part_together_are_touched() -> None:
    first = server_step([0, 60, 90], relation_rounds=10)
    second = server_step([0, 90], cohort=[0, 1], memory=first.memory, relation_rounds=10)
    assert relations(second) == pytest.approx([0.25], abs=1e-6)
    third = server_step([0, 60, 90], memory=second.memory, relation_rounds=10)
    assert relations(third) == pytest.approx([1 / 3, 0.0, 0.75**0.5], abs=1e-6)


def test_the_preset_fills_in_what_is_not_given() -> None:
    config = make_config(("command line", {"preset": "paper"}), ("--set", {"distill_steps": "7"}))
    assert config.method.distill_steps == 7
    assert {name: getattr(config.method, name) for name in PAPER if name != "distill_steps"} == {
        name: value for name, value in PAPER.items() if name != "distill_steps"
    }
    assert (config.origins["x0_scale"], config.origins["distill_steps"]) == ("preset paper", "--set")


def test_every_preset_can_be_chosen() -> None:
    assert set(PRESETS) == {"default", *FedGKD.presets}
    assert make_config(("here", {"preset": "default"})).method == FedGKDSettings()
    with pytest.raises(SettingError, match="preset must be one of default, paper, best"):
        make_config(("here", {"preset": "papr"}))


def test_a_preset_may_choose_the_network_and_the_model_that_is_kept() -> None:
    best = make_config(("command line", {"preset": "best"}))
    assert (best.run.model, best.run.select, best.origins["model"]) == ("sage", "midpoint", "preset best")
    assert best.method == FedGKDSettings(preset="best")
    assert make_config(("command line", {"preset": "best", "model": "gcn"})).run.model == "gcn"


def test_others_have_no_presets() -> None:
    with pytest.raises(SettingError, match="preset is a setting of fedgkd, not of fedavg"):
        make_config(("here", {"algorithm": "fedavg", "preset": "paper"}))


def undistilled(kind: str, relation: str = "cosine") -> FedGKD:
    settings = FedGKDSettings(task_feature=kind, relation=relation, relation_rounds=1)
    return FedGKD(settings, Network("gcn", 16, 8, 2, 4), num_clients=3, seed=0)


def trained(algorithm: FedGKD) -> tuple[Tensors, Tensors]:
    """What three clients start from, and what they upload after a round."""
    clients = ClientBatch(range(3), planted_federation(3).graphs, seed=0)
    clients.round = 1
    algorithm.start(clients)
    start = algorithm.model.initial(0, 3)
    return start, algorithm.client_step(clients, start)


@pytest.mark.parametrize("kind", UNDISTILLED)
def test_features_that_are_not_distilled_upload_no_more_than_they_say(kind: str) -> None:
    algorithm = undistilled(kind)
    _, upload = trained(algorithm)
    assert upload.keys() == algorithm.uploads
    assert ("task_feature" in upload) == (kind == "embedding")


@pytest.mark.parametrize("kind", ["weights", "updates"])
def test_models_are_related_by_all_of_their_weights(kind: str) -> None:
    algorithm = undistilled(kind)
    start, upload = trained(algorithm)
    mixing, _ = serve(algorithm, upload, [0, 1, 2], 1, start, {})
    first, second = (
        torch.cat([(upload[name] - start[name] * (kind == "updates"))[k].flatten() for name in algorithm.shared])
        for k in (0, 1)
    )
    expected = torch.nn.functional.cosine_similarity(first, second, dim=0).item()
    assert relations(mixing)[0] == pytest.approx(expected, abs=1e-5)


def test_the_embedding_relates_as_fed_pub_does() -> None:
    algorithm = undistilled("embedding")
    _, upload = trained(algorithm)
    rows = upload["task_feature"].flatten(1)
    mixing = algorithm.server_step(upload, ServerRound(1, (0, 1, 2)))
    expected = torch.nn.functional.cosine_similarity(rows[0], rows[1], dim=0).item()
    assert rows.shape == (3, 8)
    assert relations(mixing)[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", UNDISTILLED)
@pytest.mark.parametrize("relation", ["both", "centred", "correlation"])
def test_every_relation_can_compare_them(kind: str, relation: str) -> None:
    algorithm = undistilled(kind, relation)
    start, upload = trained(algorithm)
    mixing, _ = serve(algorithm, upload, [0, 1, 2], 1, start, {})
    assert len(set(relations(mixing))) == 3


def test_what_is_not_distilled_cannot_be_distilled_once() -> None:
    with pytest.raises(SettingError, match="task_feature=weights is not distilled; leave distillation at dynamic"):
        make_config(("here", {"task_feature": "weights", "distillation": "static"}))
