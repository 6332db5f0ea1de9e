from __future__ import annotations

import pytest
import torch

from fedgkd.clients import ClientBatch, GraphBatch
from fedgkd.errors import SettingError
from fedgkd.models import BACKBONES, Dropout, MaskedNetwork, MendedNetwork, Model, Network, TwoChannel
from tests.graphs import random_graph


def test_two_layer_gcn_is_the_one_of_the_paper() -> None:
    graph = random_graph(10, 6, 3)
    batch = GraphBatch([graph])
    network = Network("gcn", 6, 5, 2, 3)
    p = network.initial(0, 1)
    a = torch.from_numpy(graph.adjacency().toarray()) + torch.eye(10)
    scale = a.sum(1).rsqrt()
    a = scale[:, None] * a * scale[None, :]
    x = torch.from_numpy(graph.x)
    h = a @ (a @ x @ p["convs.0.weight"][0]).relu() @ p["convs.1.weight"][0]
    expected = h.relu() @ p["readout.weight"][0] + p["readout.bias"][0]
    torch.testing.assert_close(network(p, batch)[0], expected)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("backbone", ["gcn", "sage", "gat", "gin"])
def test_any_depth_and_width(backbone: str, layers: int) -> None:
    batch = GraphBatch([random_graph(9, 6, 3, seed=1), random_graph(5, 6, 3, seed=2)])
    network = Network(backbone, 6, 12, layers, 3)
    logits = network(network.initial(0, 2), batch)
    assert logits.shape == (2, 9, 3)
    assert logits[0].isfinite().all()
    assert logits[1, :5].isfinite().all()


def test_all_clients_start_alike_and_the_seed_decides() -> None:
    network = Network("gcn", 6, 8, 2, 3)
    start = network.initial(7, 3)
    assert torch.equal(start["convs.0.weight"][0], start["convs.0.weight"][2])
    assert not torch.equal(start["convs.0.weight"], network.initial(8, 3)["convs.0.weight"])


def test_gat_needs_a_width_that_its_heads_divide() -> None:
    with pytest.raises(SettingError, match="multiple of gat's 4 attention heads"):
        Network("gat", 6, 10, 2, 3)


def test_dropout_keeps_the_mean_and_ignores_batch_mates() -> None:
    graphs = [random_graph(200, 4, 2, seed=1), random_graph(90, 4, 2, seed=2)]
    two, one = ClientBatch([0, 1], graphs, seed=5), ClientBatch([1], graphs[1:], seed=5)
    both = Dropout(two, 0.3)(torch.ones(2, 200, 32), two.graph.structure)
    alone = Dropout(one, 0.3)(torch.ones(1, 90, 32), one.graph.structure)
    assert torch.equal(both[1, :90], alone[0])
    assert both[0].unique().tolist() == pytest.approx([0.0, 1 / 0.7], rel=1e-4)
    assert float(both[0].mean()) == pytest.approx(1.0, abs=0.03)


def test_dropout_of_zero_changes_nothing() -> None:
    h, clients = torch.rand(1, 12, 4), ClientBatch([0], [random_graph()], seed=0)
    assert Dropout(clients, 0.0)(h, clients.graph.structure) is h


MODELS_AND_LAYERS = [
    *((Network(backbone, 6, 8, layers, 3)) for backbone in BACKBONES for layers in (1, 2, 3)),
    *(TwoChannel(backbone, 6, 8, layers, 3, 4, 3) for backbone in BACKBONES for layers in (1, 2)),
    MaskedNetwork("sage", 6, 8, 2, 3),
    *(MendedNetwork(6, 8, layers, 3, neighbours=3) for layers in (1, 2, 3)),
]


@pytest.mark.parametrize("model", MODELS_AND_LAYERS, ids=str)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_the_output_of_some_nodes_is_that_of_all(model: Model, sparse: bool) -> None:
    graphs = [random_graph(20, 6, 3, seed=1, sparse=sparse), random_graph(13, 6, 3, seed=2, sparse=sparse)]
    graph, params = GraphBatch(graphs), model.initial(3, 2)
    if "generator.encoder.readout.bias" in params:
        params["generator.encoder.readout.bias"].fill_(1.5)
    params = {name: tensor.requires_grad_() for name, tensor in params.items()}
    everyone = model(params, graph)
    some = model(params, graph, last=graph.training.structure)
    assert some.shape[1] == max(graph.training.counts) < 20
    losses = [torch.zeros(()), torch.zeros(())]
    for client, count in enumerate(graph.training.counts):
        expected = everyone[client, graph.splits[client, 0]]
        torch.testing.assert_close(some[client, :count], expected, rtol=1e-4, atol=1e-5)
        for k, logits in enumerate((expected, some[client, :count])):
            losses[k] = losses[k] + (logits * torch.linspace(-1, 1, logits.numel()).view_as(logits)).sum()
    whole, partly = (torch.autograd.grad(loss, list(params.values()), materialize_grads=True) for loss in losses)
    for name, expected, found in zip(params, whole, partly, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4, msg=name)
