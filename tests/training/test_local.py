"""The one local loop, against PyTorch Geometric, autograd and hand-made cases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.nn import GCNConv

from fedgkd.algorithms import REPORT
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.data.graph import Graph
from fedgkd.models import MaskedNetwork, MendedNetwork, Model, Network, TwoChannel
from fedgkd.models.masked import MASK
from fedgkd.training import TrainingSettings, local_round
from fedgkd.training.local import personal_model, start_clients, training_loss
from tests.graphs import planted_federation, random_graph

NETWORK = Network("gcn", num_features=6, hidden=5, layers=2, num_classes=3)
PLAIN = TrainingSettings(local_epochs=1, lr=0.05, weight_decay=0.0, dropout=0.0)


def everything(name: str) -> bool:
    return True


def start(*graphs: Graph) -> ClientBatch:
    graphs = graphs or (random_graph(),)
    clients = ClientBatch(range(len(graphs)), graphs, seed=0)
    start_clients(clients, NETWORK)
    clients.round = 1
    return clients


def weights(clients: ClientBatch) -> Tensors:
    return {name: tensor.clone() for name, tensor in personal_model(clients).items()}


class Reference(torch.nn.Module):
    """Two GCNConv and a Linear, as anybody would write them for one graph."""

    def __init__(self, params: Tensors, client: int) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([GCNConv(6, 5), GCNConv(5, 5)])
        self.readout = torch.nn.Linear(5, 3)
        with torch.no_grad():
            for name, tensor in self.named().items():
                tensor.copy_(params[name][client].T if tensor.ndim == 2 else params[name][client][0])

    def named(self) -> Tensors:
        first, second = self.convs
        return {
            "convs.0.weight": first.lin.weight,
            "convs.0.bias": first.bias,
            "convs.1.weight": second.lin.weight,
            "convs.1.bias": second.bias,
            "readout.weight": self.readout.weight,
            "readout.bias": self.readout.bias,
        }

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.convs[0](x, edge_index).relu()
        return self.readout(self.convs[1](h, edge_index).relu())


@pytest.mark.parametrize("sparse", [False, True])
def test_ten_steps_equal_a_plain_pytorch_geometric_loop(sparse: bool) -> None:
    graphs = [random_graph(30, sparse=sparse, seed=1), random_graph(20, sparse=sparse, seed=2)]
    clients = start(*graphs)
    begin = weights(clients)
    settings = TrainingSettings(local_epochs=5, lr=0.01, weight_decay=1e-3, dropout=0.0)
    for _ in range(2):  # two rounds: the moments last
        local_round(clients, {}, NETWORK, settings, everything)
    for client, graph in enumerate(graphs):
        model, data = Reference(begin, client), graph.to_pyg()
        x = data.x.to_dense()
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-3)
        for _ in range(10):
            optimiser.zero_grad()
            out = model(x, data.edge_index)
            cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
            optimiser.step()
        for name, expected in model.named().items():
            ours = personal_model(clients)[name][client]
            torch.testing.assert_close(
                ours.T if expected.ndim == 2 else ours[0], expected.detach(), rtol=1e-3, atol=1e-5, msg=name
            )


def test_the_loss_reported_is_that_of_the_last_epoch() -> None:
    clients = start()
    before = training_loss(clients, NETWORK, personal_model(clients), None)
    assert before.shape == (1,)
    report = local_round(clients, {}, NETWORK, PLAIN, everything)
    torch.testing.assert_close(report["loss"], before)
    again = local_round(clients, {}, NETWORK, PLAIN, everything)
    assert again["loss"] < report["loss"]


def test_proximal_step_equals_autograd() -> None:
    """Adam's first moment after one step is 0.1 of the gradient: that of the loss plus λ‖W − W̄‖²."""
    clients, strength = start(), 0.7
    download = {name: tensor + 0.3 for name, tensor in weights(clients).items()}
    two_epochs = replace(PLAIN, local_epochs=2)
    local_round(clients, download, NETWORK, two_epochs, everything, proximal=strength)

    leaves = {name: tensor.clone().requires_grad_() for name, tensor in download.items()}
    optimiser = torch.optim.Adam(list(leaves.values()), lr=PLAIN.lr)
    for _ in range(2):
        optimiser.zero_grad()
        distance = sum(((leaves[name] - anchor) ** 2).sum() for name, anchor in download.items())
        (training_loss(clients, NETWORK, leaves, None).sum() + strength * distance).backward()
        optimiser.step()
    for name, expected in leaves.items():
        torch.testing.assert_close(personal_model(clients)[name], expected.detach(), rtol=1e-4, atol=1e-6)
    without = start()
    local_round(without, download, NETWORK, two_epochs, everything)
    assert not torch.allclose(personal_model(without)["readout.weight"], leaves["readout.weight"], atol=1e-4)


def test_a_penalty_is_a_further_term_of_the_loss() -> None:
    clients = start()
    seen: list[Tensors] = []

    def penalty(now: Tensors, received: Tensors) -> Tensor:
        seen.append(received)
        return 1e6 * now["readout.bias"].flatten(1).sum(1)

    before = weights(clients)
    report = local_round(clients, {}, NETWORK, PLAIN, everything, penalty=penalty)
    # Adam's first step is its learning rate against the sign of the gradient.
    torch.testing.assert_close(personal_model(clients)["readout.bias"], before["readout.bias"] - PLAIN.lr)
    torch.testing.assert_close(seen[0]["readout.bias"], before["readout.bias"])
    assert report["loss"].item() < 10  # the cross-entropy alone


@pytest.mark.parametrize("backbone", ["gcn", "sage"])
def test_the_l1_norm_of_masks_is_a_further_term_of_the_loss(backbone: str) -> None:
    """Adam's first step is its learning rate against the sign of the gradient; elsewhere the term has none."""
    model = MaskedNetwork(backbone, num_features=6, hidden=5, layers=2, num_classes=3)
    moved = []
    for mask_l1 in (0.0, 1e6):
        clients = ClientBatch([0], [random_graph()], seed=0)
        start_clients(clients, model)
        for name, tensor in personal_model(clients).items():
            if name.startswith(MASK):
                tensor[:, 0] = -1.0
        before = weights(clients)
        report = local_round(clients, {}, model, PLAIN, everything, mask_l1=mask_l1)
        assert report["loss"].item() < 10  # the cross-entropy alone
        moved.append(weights(clients))
    for name, tensor in moved[1].items():
        if name.startswith(MASK):
            torch.testing.assert_close(tensor, before[name] - PLAIN.lr * before[name].sign())
        else:
            torch.testing.assert_close(tensor, moved[0][name])


def test_the_download_overrides_only_the_names_it_has() -> None:
    clients = start()
    clients.state["model.readout.bias"] += 5.0
    download = {"convs.0.weight": torch.zeros(1, 6, 5)}
    local_round(clients, download, NETWORK, PLAIN, everything)
    assert not clients.received["convs.0.weight"].any()
    # One step of Adam moves a weight by at most its learning rate.
    moved = personal_model(clients)
    assert moved["convs.0.weight"].abs().max() <= PLAIN.lr * 1.01
    assert (moved["readout.bias"] > 4).all()


def test_the_download_itself_is_not_changed() -> None:
    clients = start()
    download = weights(clients)
    copy = {name: tensor.clone() for name, tensor in download.items()}
    local_round(clients, download, NETWORK, PLAIN, everything)
    for name, tensor in download.items():
        assert tensor.equal(copy[name])
        assert not tensor.requires_grad


def test_upload_and_report() -> None:
    graphs = [random_graph(9, seed=1), random_graph(7, seed=2)]
    clients = start(*graphs)
    upload = local_round(clients, {}, NETWORK, PLAIN, lambda name: name.startswith("convs."))
    shared = [name for name in upload if name not in REPORT]
    assert shared == ["convs.0.weight", "convs.0.bias", "convs.1.weight", "convs.1.bias"]
    assert {name: tuple(upload[name].shape) for name in REPORT} == {
        "received_accuracy": (2, 3),
        "received_macro_f1": (2, 3),
        "loss": (2,),
        "trained_accuracy": (2, 3),
        "trained_macro_f1": (2, 3),
        "nodes": (2, 3),
    }
    assert upload["nodes"].tolist() == [[3, 3, 3], [3, 2, 2]]
    assert clients.seconds.keys() == {"training", "evaluation"}
    assert not any(tensor.requires_grad for tensor in upload.values())


def test_received_and_trained_models_are_both_scored() -> None:
    """A received model that always says class 0 is right on a quarter; thirty epochs teach it better."""
    clients = ClientBatch([0], planted_federation(1).graphs, seed=0)
    network = Network("gcn", num_features=16, hidden=8, layers=2, num_classes=4)
    start_clients(clients, network)
    always = weights(clients)
    always["readout.weight"].zero_()
    always["readout.bias"].zero_()[..., 0] = 1.0
    report = local_round(clients, always, network, replace(PLAIN, local_epochs=30), everything)
    train = clients.graph.splits[0, 0]
    assert report["received_accuracy"][0, 0] == (clients.graph.y[0][train] == 0).double().mean()
    assert report["trained_accuracy"][0, 0] > 0.9


@pytest.mark.parametrize("broken", ["moments", "download"])
def test_a_client_that_is_no_longer_finite_goes_back_to_what_it_received(broken: str) -> None:
    graphs = [random_graph(9, seed=k) for k in range(3)]
    clients, healthy = start(*graphs), start(*graphs)
    for batch in (clients, healthy):
        local_round(batch, {}, NETWORK, PLAIN, everything)
    download = weights(clients)
    if broken == "moments":
        clients.state["adam.first.readout.weight"][1] = torch.nan
    else:
        download["convs.0.weight"][1] = 1e38  # finite, but the logits are not
    upload = local_round(clients, download, NETWORK, PLAIN, everything)
    expected = local_round(healthy, weights(healthy), NETWORK, PLAIN, everything)
    assert upload["loss"].isnan().tolist() == [False, True, False]
    for name, tensor in personal_model(clients).items():
        assert tensor[1].equal(download[name][1])
        assert tensor[[0, 2]].equal(expected[name][[0, 2]])
    assert clients.state["adam.steps"].tolist() == [2.0, 0.0, 2.0]
    assert not clients.state["adam.first.readout.weight"][1].any()


def test_dropout_changes_with_the_round_only() -> None:
    settings = replace(PLAIN, dropout=0.5)
    results = []
    for round_ in (1, 1, 2):
        clients = start()
        clients.round = round_
        results.append(local_round(clients, {}, NETWORK, settings, everything)["readout.weight"])
    assert results[0].equal(results[1])
    assert not results[0].equal(results[2])


def test_a_round_of_some_clients_is_as_a_round_of_all_for_them() -> None:
    graphs = [random_graph(12, seed=k) for k in range(3)]
    settings = TrainingSettings(local_epochs=2)
    everybody, some = start(*graphs), start(*graphs)
    local_round(everybody, {}, NETWORK, settings, everything)
    part = some.select([0, 2])
    local_round(part, {}, NETWORK, settings, everything)
    some.update([0, 2], part)
    for name, tensor in some.state.items():
        np.testing.assert_allclose(tensor[[0, 2]], everybody.state[name][[0, 2]], rtol=1e-4, atol=1e-6)
        assert tensor[1].equal(start(*graphs).state[name][1])


@pytest.mark.parametrize(
    "model",
    [NETWORK, Network("sage", 6, 5, 2, 3), TwoChannel("gcn", 6, 5, 2, 3, 4, 3), MendedNetwork(6, 5, 2, 3)],
    ids=lambda model: type(model).__name__,
)
def test_a_client_without_training_nodes_keeps_what_it_received(model: Model) -> None:
    other = random_graph(12, 6, 3)
    nobody = np.zeros(12, bool)
    alone = replace(other, train_mask=nobody, val_mask=~nobody, test_mask=nobody)
    for graphs in ([alone], [alone, other]):
        clients = ClientBatch(range(len(graphs)), graphs, seed=0)
        start_clients(clients, model)
        before = {name: tensor.clone() for name, tensor in personal_model(clients).items()}
        upload = local_round(clients, {}, model, TrainingSettings(local_epochs=2, dropout=0.5), everything)
        assert upload["loss"].isnan().tolist() == [True, False][: len(graphs)]
        assert all(upload[name][0].equal(tensor[0]) for name, tensor in before.items())
