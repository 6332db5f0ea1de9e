from __future__ import annotations

import numpy as np
import torch

from fedgkd.clients import ClientBatch, GraphBatch
from fedgkd.clients.mending import NewNodes
from fedgkd.data.graph import Graph
from fedgkd.models import Dropout, MendedNetwork, Network
from fedgkd.models.mended import NOISE
from tests.graphs import random_graph

MODEL = MendedNetwork(num_features=6, hidden=5, layers=2, num_classes=3, neighbours=3)


def _params(clients: int) -> dict[str, torch.Tensor]:
    params = MODEL.initial(0, clients)
    draw = torch.Generator().manual_seed(0)
    params[NOISE] = torch.randn(params[NOISE].shape, generator=draw)
    return params


def test_without_missing_neighbours_it_is_graphsage() -> None:
    graph = GraphBatch([random_graph(10, 6, 3, seed=1), random_graph(7, 6, 3, seed=2)])
    params = _params(2)
    params["generator.encoder.readout.weight"].zero_()
    params["generator.encoder.readout.bias"].fill_(0.4)
    torch.testing.assert_close(MODEL(params, graph), Network("sage", 6, 5, 2, 3)(params, graph))


def test_the_start_is_that_of_the_plain_network() -> None:
    plain, start = Network("sage", 6, 5, 2, 3).initial(4, 1), MODEL.initial(4, 1)
    assert all(tensor.equal(start[name]) for name, tensor in plain.items())


def test_equals_graphsage_on_the_mended_graph_written_out() -> None:
    graphs = [random_graph(10, 6, 3, seed=1, sparse=True), random_graph(7, 6, 3, seed=2, sparse=True)]
    batch, params = GraphBatch(graphs), _params(2)
    z, _ = MODEL.encode(params, batch)
    counts = torch.tensor([[k % 4 for k in range(10)], [2, *[0] * 9]])
    mended = MODEL.mend(params, batch, z, NewNodes(counts))
    found = MODEL.classify(params, mended)
    features = mended.codes @ mended.head
    for i, graph in enumerate(graphs):
        one = {name: tensor[i : i + 1] for name, tensor in params.items()}
        owners = np.repeat(np.arange(graph.num_nodes), counts[i, : graph.num_nodes])
        names = graph.num_nodes + np.arange(len(owners))
        edges = np.concatenate([graph.edge_index, [owners, names], [names, owners]], axis=1)
        x = np.concatenate([graph.x.toarray(), features[i, : len(owners)].numpy()])
        written = Graph(x, edges, np.append(graph.y, [-1] * len(owners)), 3)
        expected = Network("sage", 6, 5, 2, 3)(one, GraphBatch([written]))[0, : graph.num_nodes]
        torch.testing.assert_close(found[i, : graph.num_nodes], expected)
    assert found.shape == (2, 10, 3)


def test_neighbours_of_one_node_differ_by_their_noise_only() -> None:
    batch, params = GraphBatch([random_graph(4, 6, 3)]), _params(1)
    z, _ = MODEL.encode(params, batch)
    new = NewNodes(torch.tensor([[2, 2, 0, 0]]))
    codes = MODEL.mend(params, batch, z, new).codes[0]
    assert not codes[0].equal(codes[1])
    params[NOISE][:, 1] = params[NOISE][:, 0]
    codes = MODEL.mend(params, batch, z, new).codes[0]
    assert codes[0].equal(codes[1])


def test_counts_are_whole_within_bounds_and_none_for_padding() -> None:
    batch = GraphBatch([random_graph(4, 6, 3), random_graph(2, 6, 3)])
    missing = torch.tensor([[-2.0, 0.4, 1.6, 9.0], [1.0, 1.0, 3.0, 3.0]])
    assert MODEL.counts(missing, batch).tolist() == [[0, 0, 2, 3], [1, 1, 0, 0]]
    diverged = torch.tensor([[torch.nan, torch.inf, -torch.inf, 1e38], [torch.nan] * 4])
    assert MODEL.counts(diverged, batch).tolist() == [[0, 3, 0, 3], [0, 0, 0, 0]]


def test_dropout_is_the_same_alone_and_in_a_batch() -> None:
    graphs, params = [random_graph(12, 6, 3, seed=1), random_graph(9, 6, 3, seed=2)], _params(2)
    both, alone = ClientBatch([0, 1], graphs, seed=5), ClientBatch([1], graphs[1:], seed=5)
    counts = torch.ones(2, 12, dtype=torch.int64) * both.graph.present
    results = []
    for clients, rows in ((both, slice(0, 2)), (alone, slice(1, 2))):
        own = {name: tensor[rows] for name, tensor in params.items()}
        z, _ = MODEL.encode(own, clients.graph)
        nodes = clients.graph.padded_nodes
        mended = MODEL.mend(own, clients.graph, z, NewNodes(counts[rows, :nodes]))
        results.append(MODEL.classify(own, mended, Dropout(clients, 0.5)))
    torch.testing.assert_close(results[0][1, :9], results[1][0])


def test_local_training_leaves_the_generator_alone() -> None:
    trained = {name for name in MODEL.parameters if MODEL.trains(name)}
    assert trained == set(Network("sage", 6, 5, 2, 3).parameters)
