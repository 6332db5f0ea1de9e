from __future__ import annotations

import numpy as np
import pytest
import torch

from fedgkd.clients import ClientBatch
from fedgkd.clients.mending import NewNodes
from fedgkd.data.graph import Graph
from fedgkd.models import MendedNetwork
from fedgkd.randomness import stream
from fedgkd.training.generator import GeneratorSettings, Lessons, impair, train_generator
from tests.graphs import random_graph

HUBS, LEAVES = 6, 6


def _stars_and_pairs() -> Graph:
    """Six stars of six leaves and six pairs; only leaves can be hidden, so only hubs can lose neighbours."""
    hubs = np.arange(HUBS)
    leaves = HUBS + np.arange(HUBS * LEAVES)
    pairs = leaves[-1] + 1 + np.arange(12)
    edges = np.concatenate([[np.repeat(hubs, LEAVES), leaves], pairs.reshape(2, 6)], axis=1)
    kind = np.repeat([0, 1, 2], [HUBS, len(leaves), len(pairs)])
    train = kind != 1
    nobody = np.zeros(len(kind), bool)
    return Graph(np.eye(3)[kind], np.concatenate([edges, edges[::-1]], axis=1), kind, 3, train, nobody, ~train)


def test_neighbours_are_generated_only_where_degree_was_lost() -> None:
    graph = _stars_and_pairs()
    clients = ClientBatch([0], [graph], seed=0)
    model = MendedNetwork(3, 16, 2, 3)
    params = model.initial(0, 1) | train_generator(clients, model, GeneratorSettings(generator_epochs=150))
    z, missing = model.encode(params, clients.graph)
    counts = model.counts(missing, clients.graph)[0]
    assert counts[:HUBS].min() >= 2
    assert counts[HUBS:].max() == 0
    # What was lost there are leaves, and their features are what is generated.
    mended = model.mend(params, clients.graph, z, NewNodes(counts[None]))
    made = (mended.codes @ mended.head).flatten(0, 1)[mended.new.real]
    assert made.argmax(dim=1).unique().tolist() == [1]
    assert (made - torch.tensor([0.0, 1.0, 0.0])).abs().max() < 0.5


def test_what_is_hidden_and_what_is_missing() -> None:
    """A path 0 – 1 – 2 with a leaf 3 at 1: all but node 1 may be hidden, and are."""
    x = np.arange(8.0).reshape(4, 2)
    edges = np.array([[0, 1, 1, 2, 1, 3], [1, 0, 2, 1, 3, 1]])
    train = np.array([False, True, False, False])
    graph = Graph(x, edges, [0, 1, 0, 1], 2, train, ~train, np.zeros(4, bool))
    found = impair(graph, 1.0, 5, stream(0, "test"))
    assert found.graph.num_nodes == 1
    assert found.graph.num_edges == 0
    assert found.counts.tolist() == [3]
    (candidates,) = found.candidates.tolist()
    assert sorted(candidates[:3]) == [0, 2, 3]
    assert candidates[3:] == candidates[:2]
    assert impair(graph, 1.0, 2, stream(0, "test")).counts.tolist() == [2]
    nothing = impair(graph, 0.0, 5, stream(0, "test"))
    assert nothing.graph.num_nodes == 4
    assert nothing.counts.tolist() == [0, 0, 0, 0]


def test_only_nodes_outside_the_training_split_are_hidden() -> None:
    graph = random_graph(60, seed=3)
    assert graph.train_mask is not None
    found = impair(graph, 0.5, 5, stream(0, "test"))
    assert found.graph.num_nodes == 40
    assert found.graph.train_mask is not None
    assert found.graph.train_mask.sum() == graph.train_mask.sum()
    lost = graph.num_edges - found.graph.num_edges
    assert 0 < found.counts.sum() <= lost / 2


def test_feature_loss_takes_the_nearest_hidden_neighbour() -> None:
    """Generated (1, 0) beside hidden (0, 1) and (3, 0): the first is the nearer, at 2; the mean square is 10/3."""
    x = np.array([[0.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
    train = np.array([True, False, False])
    graph = Graph(x, [[0, 1, 0, 2], [1, 0, 2, 0]], [0, 1, 1], 2, train, ~train, np.zeros(3, bool))
    settings = GeneratorSettings(hidden_share=1.0, neighbours=2)
    lessons = Lessons(ClientBatch([0], [graph], seed=0), settings)
    head = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]])
    always = torch.tensor([[[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]])
    assert lessons.feature_loss(head, always).item() == pytest.approx(2 * 2 / (2 * 10 / 3))
    exactly = torch.tensor([[[-1.0, 1.0, 1.0], [2.0, 0.0, 1.0]]])
    assert lessons.feature_loss(head, exactly).item() == pytest.approx(0.0, abs=1e-6)


def test_count_loss_is_smooth_l1_over_the_visible_nodes() -> None:
    graph = _stars_and_pairs()
    lessons = Lessons(ClientBatch([0], [graph], seed=0), GeneratorSettings(hidden_share=0.0))
    missing = torch.zeros(1, graph.num_nodes)
    missing[0, :2] = torch.tensor([0.5, 3.0])
    expected = (0.5 * 0.25 + 2.5) / graph.num_nodes
    assert lessons.count_loss(missing).item() == pytest.approx(expected)


def test_a_batch_learns_what_each_client_learns_alone() -> None:
    graphs = [random_graph(20, seed=1), random_graph(14, seed=2)]
    model, settings = MendedNetwork(6, 8, 2, 3), GeneratorSettings(generator_epochs=5)
    both = train_generator(ClientBatch([0, 1], graphs, seed=5), model, settings)
    alone = train_generator(ClientBatch([1], graphs[1:], seed=5), model, settings)
    for name, tensor in alone.items():
        torch.testing.assert_close(both[name][1], tensor[0], rtol=1e-3, atol=1e-4, msg=name)


def test_features_that_are_all_zero_do_no_harm() -> None:
    graph = _stars_and_pairs()
    zeros = Graph(np.zeros_like(graph.x), graph.edge_index, graph.y, 3, *graph.masks)
    generator = train_generator(ClientBatch([0], [zeros], 0), MendedNetwork(3, 8, 2, 3), GeneratorSettings())
    assert all(tensor.isfinite().all() for tensor in generator.values())
