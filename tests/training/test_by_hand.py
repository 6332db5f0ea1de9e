"""Training by hand against the general loop, with the same dropout masks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fedgkd.algorithms.fedavg import FedAvg
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.data.graph import Graph
from fedgkd.errors import SettingError
from fedgkd.models import MaskedNetwork, Model, Network
from fedgkd.models.gcn import FIRST, GCNStep
from fedgkd.models.masked import MASK
from fedgkd.training import TrainingSettings, local_round
from fedgkd.training.local import personal_model, start_clients
from tests.graphs import random_graph

FEATURES = 40


def bags_of_words(seed: int, nodes: int, columns: slice) -> Graph:
    """A graph with sparse features in some of the columns only."""
    graph = random_graph(nodes, features=FEATURES, seed=seed)
    x = np.zeros((nodes, FEATURES), np.float32)
    x[np.arange(nodes), np.arange(nodes) % len(range(*columns.indices(FEATURES))) + (columns.start or 0)] = 1.0
    return Graph(sp.csr_array(x), graph.edge_index, graph.y, graph.num_classes, *graph.masks)


SPARSE = [bags_of_words(1, 30, slice(0, 12)), bags_of_words(2, 25, slice(5, 35)), bags_of_words(3, 17, slice(38, 40))]
DENSE = [random_graph(nodes, features=FEATURES, seed=nodes) for nodes in (30, 25, 17)]


def trained(
    graphs: list[Graph],
    model: Model,
    settings: TrainingSettings,
    proximal: float,
    rounds: int,
    mask_l1: float = 0.0,
) -> Tensors:
    clients = ClientBatch(range(len(graphs)), graphs, seed=4)
    start_clients(clients, model)
    for round_ in range(1, rounds + 1):
        clients.round = round_
        # A server that sends everybody the mean, so that the proximal term and unseen rows have something to do.
        download = {
            name: t.mean(0, keepdim=True).repeat(len(t), *(1 for _ in t.shape[1:]))
            for name, t in personal_model(clients).items()
            if not name.startswith(MASK)
        }
        local_round(clients, download, model, settings, lambda name: True, proximal, mask_l1)
    return {name: tensor.clone() for name, tensor in personal_model(clients).items()}


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("graphs", [SPARSE, DENSE], ids=["sparse", "dense"])
@pytest.mark.parametrize(
    ("dropout", "weight_decay", "proximal"), [(0.0, 1e-3, 0.0), (0.5, 1e-3, 1e-2), (0.3, 0.0, 0.0)]
)
def test_fifty_steps_equal_autograd(
    monkeypatch: pytest.MonkeyPatch,
    graphs: list[Graph],
    layers: int,
    dropout: float,
    weight_decay: float,
    proximal: float,
) -> None:
    network = Network("gcn", FEATURES, hidden=8, layers=layers, num_classes=3)
    settings = TrainingSettings(local_epochs=5, lr=0.01, weight_decay=weight_decay, dropout=dropout)
    by_hand = trained(graphs, network, settings, proximal, rounds=10)
    monkeypatch.setattr(GCNStep, "fits", lambda model: False)
    by_autograd = trained(graphs, network, settings, proximal, rounds=10)
    for name, expected in by_autograd.items():
        torch.testing.assert_close(by_hand[name], expected, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("graphs", [SPARSE, DENSE], ids=["sparse", "dense"])
@pytest.mark.parametrize("proximal", [0.0, 1e-2])
@pytest.mark.parametrize("mask_l1", [0.0, 1e-3])
def test_fifty_steps_with_masks_equal_autograd(
    monkeypatch: pytest.MonkeyPatch, graphs: list[Graph], proximal: float, mask_l1: float
) -> None:
    model = MaskedNetwork("gcn", FEATURES, hidden=8, layers=2, num_classes=3)
    settings = TrainingSettings(local_epochs=5, lr=0.01, weight_decay=1e-3, dropout=0.5)
    by_hand = trained(graphs, model, settings, proximal, 10, mask_l1)
    monkeypatch.setattr(GCNStep, "fits", lambda model: False)
    by_autograd = trained(graphs, model, settings, proximal, 10, mask_l1)
    assert by_hand.keys() == model.parameters.keys()
    for name, expected in by_autograd.items():
        torch.testing.assert_close(by_hand[name], expected, rtol=1e-3, atol=1e-4, msg=name)


def test_mask_rows_of_unseen_columns_move_by_the_l1_norm_alone() -> None:
    model = MaskedNetwork("gcn", FEATURES, hidden=8, layers=2, num_classes=3)
    settings = TrainingSettings(local_epochs=2, lr=0.01, weight_decay=0.0, dropout=0.0)
    for mask_l1, expected in ((0.0, 1.0), (1e-3, 0.98)):
        mask = trained(SPARSE, model, settings, proximal=1e-2, rounds=1, mask_l1=mask_l1)[MASK + FIRST]
        torch.testing.assert_close(mask[0, 12:], torch.full((FEATURES - 12, 8), expected), rtol=0, atol=1e-5)
        assert not torch.allclose(mask[0, :12], torch.tensor(expected), atol=1e-3)


def test_rows_of_unseen_columns_move_by_weight_decay_alone() -> None:
    network = Network("gcn", FEATURES, hidden=8, layers=2, num_classes=3)
    before = network.initial(4, len(SPARSE))[FIRST]
    for decay, moves in ((0.0, False), (1e-3, True)):
        settings = TrainingSettings(local_epochs=2, lr=0.01, weight_decay=decay, dropout=0.0)
        after = trained(SPARSE, network, settings, proximal=0.0, rounds=1)[FIRST]
        assert not torch.equal(after[0, :12], before[0, :12])
        assert torch.allclose(after[0, 12:], before[0, 12:], atol=1e-5) is not moves
    # Two steps of Adam whose gradients all point to zero are two steps of the learning rate.
    far = before[0, 12:].abs() > 0.05
    torch.testing.assert_close(after[0, 12:].abs()[far], before[0, 12:].abs()[far] - 0.02, rtol=0, atol=1e-3)


def test_the_seen_columns_of_each_client_come_first() -> None:
    columns = ClientBatch(range(3), SPARSE, seed=0).graph.columns
    assert columns.most == 25  # of the second client, which has as many nodes with a column each
    weight = torch.arange(3.0 * FEATURES).view(3, FEATURES, 1)
    ordered = torch.empty_like(weight)
    for client in range(3):
        columns.sort(client, weight[client], ordered[client])
    assert ordered[0, :12, 0].tolist() == list(range(12))
    assert ordered[2, :3, 0].tolist() == [2 * FEATURES + k for k in (38, 39, 0)]
    columns.unsort(ordered)
    assert torch.equal(ordered, weight)


@pytest.mark.parametrize("kind", [Network, MaskedNetwork])
def test_clients_at_different_steps_train_as_alone(kind: type[Network] | type[MaskedNetwork]) -> None:
    """With partial participation moments differ in age; every client's step counts its own."""
    model = kind("gcn", FEATURES, hidden=8, layers=2, num_classes=3)
    settings = TrainingSettings(local_epochs=2, dropout=0.5)
    for graphs in (SPARSE, DENSE):
        clients = ClientBatch(range(3), graphs, seed=4)
        start_clients(clients, model)
        alone = ClientBatch([1], graphs[1:2], seed=4)
        start_clients(alone, model)
        for round_, rows in enumerate(([0, 1, 2], [0, 2], [1, 2], [0, 1, 2]), start=1):
            part = clients.select(rows)
            part.round = alone.round = round_
            local_round(part, {}, model, settings, lambda name: True)
            clients.update(rows, part)
            if 1 in rows:
                local_round(alone, {}, model, settings, lambda name: True)
        for name, expected in personal_model(alone).items():
            torch.testing.assert_close(personal_model(clients)[name][1:2], expected, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize(("weight_decay", "decay_unseen"), [(0.0, True), (1e-3, False)])
def test_rows_of_unseen_columns_stay_as_received_if_nothing_moves_them(weight_decay: float, decay_unseen: bool) -> None:
    """Neither batch-mates with more columns nor the proximal term at rest change that."""
    network = Network("gcn", FEATURES, hidden=8, layers=2, num_classes=3)
    before = network.initial(4, len(SPARSE))[FIRST]
    settings = TrainingSettings(local_epochs=3, weight_decay=weight_decay, decay_unseen=decay_unseen)
    after = trained(SPARSE, network, settings, proximal=1.0, rounds=1)[FIRST]
    for client, seen in enumerate((range(12), range(5, 30), range(38, 40))):
        unseen = [column for column in range(FEATURES) if column not in seen]
        torch.testing.assert_close(after[client, unseen], before[client, unseen], rtol=1e-6, atol=1e-7)
        assert (after[client, list(seen)] != before[client, list(seen)]).any(dim=1).all()


def test_a_client_that_has_every_column_and_one_that_has_none() -> None:
    all_of_them, none = bags_of_words(1, 80, slice(0, FEATURES)), random_graph(9, features=FEATURES, seed=3)
    none = Graph(sp.csr_array((9, FEATURES), dtype=np.float32), none.edge_index, none.y, none.num_classes, *none.masks)
    network = Network("gcn", FEATURES, hidden=8, layers=2, num_classes=3)
    settings = TrainingSettings(weight_decay=1e-3)
    together = trained([all_of_them, none], network, settings, proximal=0.0, rounds=1)[FIRST]
    alone = trained([all_of_them], network, settings, proximal=0.0, rounds=1)[FIRST]
    torch.testing.assert_close(together[:1], alone)
    assert (together[1].abs() < network.initial(4, 1)[FIRST][0].abs()).double().mean() > 0.8  # decay alone


@pytest.mark.parametrize(("backbone", "layers"), [("sage", 2), ("gcn", 1)])
def test_other_models_have_no_unseen_rows_to_keep(backbone: str, layers: int) -> None:
    settings, network = FedAvg.Settings(decay_unseen=False), Network("gcn", FEATURES, 8, layers=2, num_classes=3)
    FedAvg(settings, network, num_clients=2, seed=0)
    with pytest.raises(SettingError, match="decay_unseen"):
        FedAvg(settings, replace(network, backbone=backbone, layers=layers), num_clients=2, seed=0)
