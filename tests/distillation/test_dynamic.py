"""Dynamic distillation: a task as a tiny graph that the client's model classifies well."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from fedgkd.clients import ClientBatch, DenseFeatures, DenseStructure, SmallGraphs, Tensors
from fedgkd.distillation import TASK_FEATURES, DistillationSettings, by_hand, distil, dynamic
from fedgkd.distillation.synthetic import edge_noise, sample_edges
from fedgkd.errors import SettingError
from fedgkd.models import BACKBONES, Network
from fedgkd.training import TrainingSettings, local_round
from fedgkd.training.local import personal_model, start_clients
from tests.graphs import planted_federation

NETWORK = Network("gcn", num_features=16, hidden=8, layers=2, num_classes=4)
SETTINGS = DistillationSettings(nodes_per_class=2, task_feature="x_h")
COLUMNS = {"x_h": 16 + 8, "x": 16, "h": 8, "y": 4, "predictions": 4}


def trained(network: Network = NETWORK, groups: int = 1) -> ClientBatch:
    """Two clients after a round of twenty epochs."""
    clients = ClientBatch([0, 1], planted_federation(2, groups=groups).graphs, seed=0)
    start_clients(clients, network)
    clients.round = 1
    local_round(clients, {}, network, TrainingSettings(local_epochs=20, lr=0.05), lambda name: True)
    return clients


def features(clients: ClientBatch, params: Tensors | None = None, **changes: object) -> Tensor:
    return distil(clients, NETWORK, params or personal_model(clients), replace(SETTINGS, **changes))


def loss_on(x: Tensor, y: Tensor, params: Tensors) -> Tensor:
    """Each client's cross-entropy on a synthetic graph, without noise in its edges: ``(clients,)``."""
    edges = sample_edges(x, torch.zeros(x.shape[1], x.shape[1]), SETTINGS.gamma, SETTINGS.tau_g)
    log_p = log_softmax(NETWORK(params, SmallGraphs(DenseFeatures(x), edges)), dim=-1)
    return -(y * log_p).sum(-1).mean(-1)


@pytest.mark.parametrize("scale", [None, 1.0])
def test_it_lowers_the_loss_of_the_clients_model(scale: float | None) -> None:
    clients = trained()
    losses = []
    for steps in (0, 5, 30):
        x = features(clients, task_feature="x", distill_steps=steps, x0_scale=scale)
        y = features(clients, task_feature="y", distill_steps=steps, x0_scale=scale)
        losses.append(loss_on(x, y, personal_model(clients)))
    assert (losses[1] < losses[0]).all()
    assert (losses[2] < losses[1]).all()


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize(("gamma", "tau_g"), [(0.75, 1.0), (0.0, 0.3)])
def test_the_gradient_by_hand_is_that_of_autograd(layers: int, gamma: float, tau_g: float) -> None:
    network = replace(NETWORK, layers=layers)
    params = {
        name: tensor + 0.3 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(7))
        for name, tensor in network.initial(3, clients=3).items()
    }
    draw = torch.Generator().manual_seed(layers)
    x, y = torch.randn(3, 8, 16, generator=draw), torch.rand(3, 8, 4, generator=draw).softmax(-1)
    noise = 2 * torch.randn(8, 8, generator=draw)
    noise = noise + noise.T
    given = (network, params, x, y, noise, gamma, tau_g)
    for ours, expected in zip(by_hand.loss_gradient(*given), dynamic.loss_gradient(*given), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)


def test_without_steps_it_is_the_common_start() -> None:
    clients = trained()
    assert features(clients, task_feature="x", distill_steps=0).equal(SETTINGS.start(clients, NETWORK).x)


@pytest.mark.parametrize("kind", TASK_FEATURES)
def test_shapes(kind: str) -> None:
    found = features(trained(), task_feature=kind)
    assert found.shape == (2, 4 if kind == "predictions" else 2 * 4, COLUMNS[kind])
    assert found.isfinite().all()
    assert not found.requires_grad


def test_every_kind_is_tested() -> None:
    assert set(TASK_FEATURES) == COLUMNS.keys()


@pytest.mark.parametrize("kind", TASK_FEATURES)
def test_equal_models_have_equal_features(kind: str) -> None:
    """The noise is common, so a difference between features is a difference between models."""
    clients = trained()
    same = {name: tensor[:1].expand_as(tensor).contiguous() for name, tensor in personal_model(clients).items()}
    found = features(clients, same, task_feature=kind)
    torch.testing.assert_close(found[0], found[1])
    different = features(clients, task_feature=kind)
    assert not torch.allclose(different[0], different[1], atol=1e-5)


def test_x_h_is_x_beside_h() -> None:
    clients = trained()
    both = features(clients, task_feature="x_h")
    assert both[:, :, :16].equal(features(clients, task_feature="x"))
    assert both[:, :, 16:].equal(features(clients, task_feature="h"))


@pytest.mark.parametrize("kind", ["y", "predictions"])
def test_labels_and_predictions_are_distributions(kind: str) -> None:
    found = features(trained(), task_feature=kind, distill_steps=20)
    assert (found >= 0).all()
    torch.testing.assert_close(found.sum(-1), torch.ones(found.shape[:2]))


def test_predictions_are_means_over_the_nodes_of_a_class() -> None:
    clients = trained()
    params = personal_model(clients)
    found = features(clients, task_feature="predictions", distill_steps=0, gamma=1e9)  # no edges
    start = SETTINGS.start(clients, NETWORK)
    alone = SmallGraphs(DenseFeatures(start.x), DenseStructure(torch.zeros(2, 8, 8)))
    each = NETWORK(params, alone).softmax(-1)
    torch.testing.assert_close(found, (each[:, ::2] + each[:, 1::2]) / 2)  # nodes 0 and 1 are those of class 0


def test_the_model_is_left_as_it_is() -> None:
    clients = trained()
    before = {name: tensor.clone() for name, tensor in clients.state.items()}
    features(clients)
    assert all(tensor.equal(before[name]) for name, tensor in clients.state.items())


def test_noise_is_new_in_every_round_and_the_same_for_the_same_round() -> None:
    clients = trained()
    first, again = features(clients), features(clients)
    clients.round = 2
    assert first.equal(again)
    assert not first.equal(features(clients))


def test_a_feature_is_the_mean_over_draws_of_the_edges() -> None:
    """The first draw is that of a single one, and each stands for all that has to do with edges."""
    clients = trained()
    one, many = (features(clients, task_feature="h", edge_draws=draws) for draws in (1, 3))
    network, params = NETWORK, personal_model(clients)
    x = features(clients, task_feature="x")
    noise = edge_noise(clients.seed, clients.round, SETTINGS.distill_steps + 3, x.shape[1])[SETTINGS.distill_steps :]
    edges = [sample_edges(x, each, SETTINGS.gamma, SETTINGS.tau_g) for each in noise]
    each = [network.embed(params, SmallGraphs(DenseFeatures(x), drawn)) for drawn in edges]
    torch.testing.assert_close(one, each[0])
    torch.testing.assert_close(many, (each[0] + each[1] + each[2]) / 3)
    assert not torch.allclose(one, many)


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("layers", [1, 3])
def test_any_backbone_and_depth(backbone: str, layers: int) -> None:
    network = Network(backbone, num_features=16, hidden=8, layers=layers, num_classes=4)
    clients = trained(network)
    found = distil(clients, network, personal_model(clients), SETTINGS)
    assert found.shape == (2, 8, 24)
    assert found.isfinite().all()


def test_the_scale_of_the_start() -> None:
    assert SETTINGS.feature_scale(NETWORK) == pytest.approx(0.1 / 4)  # 0.1/√16
    assert replace(SETTINGS, x0_scale=1.0).feature_scale(NETWORK) == 1.0
    with pytest.raises(SettingError, match="x0_scale must be above 0"):
        replace(SETTINGS, x0_scale=0.0)
