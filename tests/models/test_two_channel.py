from __future__ import annotations

import torch

from fedgkd.clients import GraphBatch
from fedgkd.clients.encodings import structure_encoding
from fedgkd.models import Network, TwoChannel
from tests.graphs import random_graph


def test_the_channels_meet_in_every_layer_as_published() -> None:
    graph = random_graph(10, 6, 3)
    model = TwoChannel.of(Network("gcn", 6, 5, 2, 3), walk_steps=4, max_degree=3)
    p = {name: tensor[0] for name, tensor in model.initial(0, 1).items()}
    a = torch.from_numpy(graph.adjacency().toarray()) + torch.eye(10)
    scale = a.sum(1).rsqrt()
    a = scale[:, None] * a * scale[None, :]
    x = torch.from_numpy(graph.x)
    s = torch.from_numpy(structure_encoding(graph, 4, 3)) @ p["structure.embed.weight"] + p["structure.embed.bias"]
    for layer in range(2):
        both = torch.cat([x, s], dim=1)
        x = (a @ both @ p[f"feature.convs.{layer}.weight"] + p[f"feature.convs.{layer}.bias"]).relu()
        s = (a @ s @ p[f"structure.convs.{layer}.weight"] + p[f"structure.convs.{layer}.bias"]).tanh()
    h = (torch.cat([x, s], dim=1) @ p["feature.join.weight"] + p["feature.join.bias"]).relu()
    expected = h @ p["readout.weight"] + p["readout.bias"]
    found = model({name: tensor[None] for name, tensor in p.items()}, GraphBatch([graph]))
    torch.testing.assert_close(found[0], expected)


def test_sparse_features_give_the_same_and_stay_sparse() -> None:
    graph = random_graph(30, 40, 3, sparse=True)
    dense = random_graph(30, 40, 3, sparse=True)
    object.__setattr__(dense, "x", graph.x.toarray())
    model = TwoChannel("sage", 40, 8, 2, 3)
    params = model.initial(1, 1)
    torch.testing.assert_close(model(params, GraphBatch([graph])), model(params, GraphBatch([dense])))


def test_the_number_of_parameters_counts_both_channels() -> None:
    sizes = {name: torch.Size(p.shape).numel() for name, p in TwoChannel("gcn", 10, 4, 2, 3).parameters.items()}
    structure = 32 * 4 + 4 + 2 * (4 * 4 + 4)
    feature = (10 + 4) * 4 + 4 + (4 + 4) * 4 + 4 + (8 * 4 + 4)
    assert sum(size for name, size in sizes.items() if name.startswith("structure.")) == structure
    assert sum(sizes.values()) == structure + feature + 4 * 3 + 3
