"""FedGKD's server: the relation that it remembers; and the values that the paper names."""

from __future__ import annotations

import math
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
from fedgkd.experiments.runner import Run
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


def test_prototypes_are_sent_with_their_counts_and_nothing_is_distilled() -> None:
    federation = planted_federation(3)
    network = Network("gcn", federation.num_features, 8, 2, federation.num_classes)
    algorithm = FedGKD(FedGKDSettings(task_feature="prototypes", prototype_size=6), network, 3, seed=0)
    clients = ClientBatch(range(3), federation.graphs, seed=0)
    algorithm.start(clients)
    clients.round = 1
    start = algorithm.model.initial(0, 3)
    upload = algorithm.client_step(clients, start)
    assert upload.keys() == algorithm.uploads
    assert upload["task_feature"].shape == (3, federation.num_classes, 6)
    graph = federation.graphs[1]
    assert graph.masks is not None
    train = graph.y[graph.masks[0]]
    assert upload["task_counts"][1].tolist() == [float((train == c).sum()) for c in range(federation.num_classes)]
    again = algorithm.client_step(clients, start)
    assert again["task_feature"].equal(upload["task_feature"]), "they describe the data, not the model"
    with pytest.raises(SettingError, match="task_feature=prototypes is not distilled"):
        FedGKDSettings(task_feature="prototypes", distillation="static")


def test_an_own_share_does_not_depend_on_the_partners() -> None:
    mixing = server_step([0, 10, 90], own_share=0.25, tau_s=20.0)
    assert mixing.weights.diagonal().tolist() == pytest.approx([0.25] * 3)
    assert mixing.weights.sum(dim=1).tolist() == pytest.approx([1.0] * 3)
    assert mixing.weights[0, 1] > 2 * mixing.weights[0, 2], "the nearer client counts more"
    even = server_step([0, 10, 90], own_share=0.25, tau_s=0.0)
    assert even.weights[0].tolist() == pytest.approx([0.25, 0.375, 0.375])


def test_a_large_kernel_leaves_something_to_the_partners() -> None:
    """The diagonal of exp(τR) is far above the rest: a softmax over all would give the partners exactly nothing."""
    mixing = server_step([0, 10, 90], own_share=0.5, tau=9.0, tau_s=50.0)
    assert mixing.weights.isfinite().all()
    assert mixing.weights[0, 1] == pytest.approx(0.5)


def test_the_gate_treats_all_partners_alike_unless_there_is_structure() -> None:
    shut = server_step([0, 60, 90], own_share=0.2, gate=True, tau_s=10.0)
    assert shut.facts["gate_open"] is False
    assert shut.weights[0].tolist() == pytest.approx([0.2, 0.4, 0.4])
    assert "gate_open" not in server_step([0, 60, 90]).facts


def test_tau_by_spectrum_makes_the_kernel_the_same_whatever_the_number_of_copies() -> None:
    """Four times as many clients of the same two groups have four times the eigenvalue, and the same exponent."""
    kernels = []
    for copies in (2, 8):
        angles = torch.tensor([0.0, 80.0]).repeat_interleave(copies).deg2rad()
        features = torch.stack([angles.cos(), angles.sin()], dim=1).unsqueeze(1)
        settings = FedGKDSettings(relation="cosine", kernel="centred", tau=4.0, tau_by_spectrum=True)
        algorithm = FedGKD(settings, NETWORK, num_clients=2 * copies, seed=0)
        mixing = algorithm.server_step({"task_feature": features}, ServerRound(1, tuple(range(2 * copies))))
        assert mixing.kernel is not None
        kernels.append(mixing.kernel[0])
    for copies, kernel in zip((2, 8), kernels, strict=True):
        # exp(4) along the one direction that separates the groups, 1 elsewhere, scaled to a unit diagonal.
        grown = (math.exp(4.0) - 1.0) / (2 * copies)
        assert kernel[1].item() == pytest.approx(grown / (1 + grown), rel=1e-6)
        assert kernel[-1].item() == pytest.approx(-grown / (1 + grown), rel=1e-6)


@pytest.mark.parametrize("feature", ["predictions", "prototypes"])
def test_masks_are_fed_pubs_and_stay_at_the_client(feature: str) -> None:
    """With everybody mixed alike the two algorithms train the same models, whatever describes the tasks."""
    alike = {"hidden": 8, "rounds": 3, "threads": 1}
    ours = {"algorithm": "fedgkd", "masks": True, "kernel": "uniform", "task_feature": feature}
    theirs = {"algorithm": "fedpub", "scale": 0.0}
    models = []
    for settings in (ours, theirs):
        run = Run(make_config(("test", alike | settings)), planted_federation(3), None)
        assert not any("masks." in name for name in run.algorithm.uploads)
        run.start()
        run.execute()
        models.append(run.personal_models())
    for one, other in zip(*models, strict=True):
        assert one.params.keys() == other.params.keys()
        for name, tensor in one.params.items():
            torch.testing.assert_close(tensor, other.params[name], rtol=1e-5, atol=1e-6, msg=name)
