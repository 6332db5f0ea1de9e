from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedgkd.algorithms import ServerRound
from fedgkd.algorithms.fedpub import FedPub, FedPubSettings
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.distillation.proxy import BLOCK_NODES, BLOCKS, proxy_graph
from fedgkd.models import Network
from fedgkd.models.masked import MASK
from fedgkd.training.local import personal_model
from tests.graphs import planted_federation

FEATURES = 16


def algorithm(**settings: Any) -> FedPub:
    return FedPub(FedPubSettings(**settings), Network("gcn", FEATURES, 8, 2, 4), num_clients=3, seed=0)


def started(fedpub: FedPub) -> tuple[ClientBatch, Tensors]:
    clients = ClientBatch(range(3), planted_federation(3).graphs, seed=0)
    clients.round = 1
    fedpub.start(clients)
    start = fedpub.model.initial(0, 3)
    return clients, {name: start[name] for name in fedpub.shared}


def trained(**settings: Any) -> Tensors:
    """Models after one round of training."""
    fedpub = algorithm(**settings)
    clients, download = started(fedpub)
    fedpub.client_step(clients, download)
    return personal_model(clients)


def test_mixing_is_the_softmax_of_scaled_cosines() -> None:
    # Cosines: 1 and 2 point the same way, 0 is at a right angle to both.
    embedding = torch.tensor([[0.0, 3.0], [2.0, 0.0], [0.5, 0.0]])
    mixing = algorithm(scale=2.0).server_step({"embedding": embedding}, ServerRound(1, (0, 1, 2)))
    e = float(np.exp(2.0))
    expected = [
        [e / (e + 2), 1 / (e + 2), 1 / (e + 2)],
        [1 / (1 + 2 * e), e / (1 + 2 * e), e / (1 + 2 * e)],
        [1 / (1 + 2 * e), e / (1 + 2 * e), e / (1 + 2 * e)],
    ]
    torch.testing.assert_close(mixing.weights, torch.tensor(expected, dtype=torch.float64))


def test_the_proxy_graph_is_five_random_blocks_common_to_all() -> None:
    proxy = proxy_graph(3, FEATURES, torch.device("cpu"))
    nodes = BLOCKS * BLOCK_NODES
    x = proxy.features.product(torch.eye(FEATURES).unsqueeze(0))[0]
    edges = proxy.structure.total(torch.eye(nodes).unsqueeze(0))[0]
    assert x.shape == (nodes, FEATURES)
    assert (x.mean().item(), x.std().item()) == pytest.approx((0.0, 1.0), abs=0.03)
    assert edges.equal(edges.T)
    assert edges.diagonal().sum() == 0
    block = torch.arange(nodes) // BLOCK_NODES
    same = block[:, None] == block
    assert edges[~same].sum() == 0
    assert edges[same].mean().item() == pytest.approx(0.1, abs=0.01)
    assert edges.unique().tolist() == [0.0, 1.0]
    other = proxy_graph(4, FEATURES, torch.device("cpu"))
    assert not other.features.product(torch.eye(FEATURES).unsqueeze(0))[0].equal(x)


def test_the_embedding_is_the_mean_of_what_the_masked_model_sees_of_the_proxy_graph() -> None:
    fedpub = algorithm(lr=1e-6)
    clients, download = started(fedpub)
    clients.state[f"model.{MASK}convs.1.weight"][1] = 5e-4  # closed: counts as zero, however large the weights
    download["convs.1.weight"] *= 1000.0
    upload = fedpub.client_step(clients, download)
    proxy = proxy_graph(0, FEATURES, torch.device("cpu"))
    x = proxy.features.product(torch.eye(FEATURES).unsqueeze(0))[0]
    a = proxy.structure.gcn(torch.eye(len(x)).unsqueeze(0))[0]
    for client in range(3):
        p = {name: tensor[client] for name, tensor in personal_model(clients).items()}
        masks = {name: m.where(m.abs() > 1e-3, 0.0) for name, m in p.items() if name.startswith(MASK)}
        first = a @ x @ (p["convs.0.weight"] * masks[f"{MASK}convs.0.weight"]) + p["convs.0.bias"]
        h = a @ first.relu() @ (p["convs.1.weight"] * masks[f"{MASK}convs.1.weight"]) + p["convs.1.bias"]
        torch.testing.assert_close(upload["embedding"][client], h.mean(0), rtol=1e-4, atol=1e-3)
    assert upload["embedding"][0].abs().max() > 1.0
    assert upload["embedding"][1].abs().max() < 1e-3


def test_masks_are_learned_but_never_leave_and_never_change_by_mixing() -> None:
    fedpub = algorithm()
    clients, download = started(fedpub)
    upload = fedpub.client_step(clients, download)
    assert not any(name.startswith(MASK) for name in upload)
    masks = {name: t.clone() for name, t in personal_model(clients).items() if name.startswith(MASK)}
    assert len(masks) == 3
    assert not masks[f"{MASK}convs.0.weight"][0].equal(masks[f"{MASK}convs.0.weight"][1])
    mixed = {name: tensor.mean(0, keepdim=True).expand_as(tensor).clone() for name, tensor in download.items()}
    clients.round = 2
    fedpub.client_step(clients, mixed)
    for name, tensor in masks.items():
        assert clients.received[name].equal(tensor)
    assert clients.received["convs.0.weight"].equal(mixed["convs.0.weight"])


def test_as_released_the_regularisers_do_nothing() -> None:
    released = trained(regularisers="as_released", mask_l1=1e-3, proximal=1.0)
    without = trained(regularisers="as_published", mask_l1=0.0, proximal=0.0)
    for name, tensor in released.items():
        assert tensor.equal(without[name]), name


def test_as_published_the_l1_norm_of_the_masks_falls() -> None:
    def size(model: Tensors) -> float:
        return sum(t.abs().sum().item() for name, t in model.items() if name.startswith(MASK))

    assert size(trained(mask_l1=1e-2)) < size(trained(mask_l1=0.0)) - 1.0


def test_as_published_weights_are_pulled_to_those_received_and_masks_are_not() -> None:
    """At the first step the weights are those received; the second is the only one that is pulled."""
    free = trained(local_epochs=2, proximal=0.0)
    pulled = trained(local_epochs=2, proximal=10.0)
    assert not free["convs.0.weight"].equal(pulled["convs.0.weight"])
    for name, tensor in free.items():
        assert tensor.equal(pulled[name]) == name.startswith(MASK), name
