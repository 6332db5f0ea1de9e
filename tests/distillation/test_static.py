"""Static distillation: a graph whose gradients look like those of the client's own, fixed before training."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, log_softmax

from fedgkd.algorithms.fedgkd import FedGKD, FedGKDSettings
from fedgkd.clients import ClientBatch, DenseFeatures, SmallGraphs, Tensors
from fedgkd.distillation import DistillationSettings, distil_static
from fedgkd.distillation.synthetic import sample_edges
from fedgkd.models import Network
from fedgkd.training.local import start_clients, training_loss
from tests.graphs import planted_federation

NETWORK = Network("gcn", num_features=16, hidden=8, layers=2, num_classes=4)
SETTINGS = DistillationSettings(nodes_per_class=2, task_feature="x", gamma=5.0)


def clients(groups: int = 1) -> ClientBatch:
    batch = ClientBatch([0, 1], planted_federation(2, groups=groups).graphs, seed=0)
    start_clients(batch, NETWORK)
    return batch


def gradient(loss: Tensor, params: Tensors) -> Tensor:
    """Gradients of the weight matrices, flattened per client."""
    grads = torch.autograd.grad(loss.sum(), [t for name, t in params.items() if name.endswith("weight")])
    return torch.cat([grad.flatten(1) for grad in grads], dim=1)


def distance(batch: ClientBatch, x: Tensor) -> Tensor:
    """One minus the cosine of the gradients on the synthetic and on the real graph, over models never seen."""
    y = SETTINGS.start(batch, NETWORK).y
    apart = []
    for seed in range(1000, 1010):
        params = {name: t.requires_grad_() for name, t in NETWORK.initial(seed, len(batch)).items()}
        edges = sample_edges(x, torch.zeros(x.shape[1], x.shape[1]), SETTINGS.gamma, SETTINGS.tau_g)
        log_p = log_softmax(NETWORK(params, SmallGraphs(DenseFeatures(x), edges)), dim=-1)
        synthetic = gradient(-(y * log_p).sum(-1).mean(-1), params)
        real = gradient(training_loss(batch, NETWORK, params, None), params)
        apart.append(1.0 - cosine_similarity(synthetic, real, dim=1))
    return torch.stack(apart).mean(0)


def test_it_brings_the_gradients_closer_to_the_real_ones() -> None:
    batch = clients()
    before = distance(batch, SETTINGS.start(batch, NETWORK).x)
    after = distance(batch, distil_static(batch, NETWORK, SETTINGS, models=60))
    assert (after < 0.5 * before).all()


def test_it_is_deterministic_and_tells_clients_apart() -> None:
    first = distil_static(clients(), NETWORK, SETTINGS, models=5)
    assert first.equal(distil_static(clients(), NETWORK, SETTINGS, models=5))
    assert not torch.allclose(first[0], first[1], atol=1e-4)


def test_draws_of_the_edges_leave_the_graph_as_it_is() -> None:
    one, many = (
        {
            kind: distil_static(
                clients(), NETWORK, replace(SETTINGS, gamma=0.0, task_feature=kind, edge_draws=draws), 5
            )
            for kind in "xh"
        }
        for draws in (1, 4)
    )
    assert one["x"].allclose(many["x"])
    assert not one["h"].allclose(many["h"])


def test_a_client_alone_gets_the_same_graph() -> None:
    together = distil_static(clients(), NETWORK, SETTINGS, models=5)
    alone = distil_static(clients().select([1]), NETWORK, SETTINGS, models=5)
    torch.testing.assert_close(together[1], alone[0], rtol=1e-3, atol=1e-5)


def test_the_task_feature_does_not_change_over_rounds() -> None:
    algorithm = FedGKD(FedGKDSettings(distillation="static", static_models=3), NETWORK, num_clients=2, seed=0)
    batch = clients()
    algorithm.start(batch)
    uploads = []
    for batch.round in (1, 2):
        upload = algorithm.client_step(batch, {})
        uploads.append({name: upload[name].clone() for name in ("task_feature", "readout.weight")})
    assert uploads[0]["task_feature"].equal(uploads[1]["task_feature"])
    assert not uploads[0]["readout.weight"].equal(uploads[1]["readout.weight"])
