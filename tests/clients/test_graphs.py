"""Graphs of several clients in one batch: padding, splits, sparse or dense features."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fedgkd.clients import GivenDenseFeatures, GraphBatch, SparseFeatures
from fedgkd.clients.graphs import SPARSE_SHARE
from fedgkd.data.graph import Graph
from tests.graphs import random_graph


def small_graph() -> Graph:
    return Graph(
        x=np.array([[1, 2], [3, 4]]),
        edge_index=np.array([[0, 1], [1, 0]]),
        y=np.array([1, -1]),
        num_classes=3,
        train_mask=np.array([True, False]),
        val_mask=np.array([False, False]),
        test_mask=np.array([False, False]),
    )


def test_padded_nodes_belong_to_no_split() -> None:
    batch = GraphBatch([small_graph(), random_graph(5, features=2)])
    assert (batch.num_nodes, batch.padded_nodes, batch.num_classes) == ([2, 5], 5, 3)
    assert batch.splits.shape == (2, 3, 5)
    assert batch.splits[0].int().tolist() == [[1, 0, 0, 0, 0], [0] * 5, [0] * 5]
    assert batch.splits[1].sum().item() == 5  # every node of the random graph is in one split
    assert batch.y[0].tolist() == [1, 0, 0, 0, 0]  # no label counts as class 0, and is in no split


def test_a_graph_without_masks_has_empty_splits() -> None:
    batch = GraphBatch([replace(small_graph(), train_mask=None, val_mask=None, test_mask=None)])
    assert not batch.splits.any()


def test_training_nodes_are_padded_to_one_number() -> None:
    batch = GraphBatch([small_graph(), random_graph(5, features=2)])
    assert batch.training.counts == [1, 2]
    assert batch.training.y.tolist() == [[1, 0], batch.y[1, [0, 3]].tolist()]
    assert batch.training.weights.tolist() == [[1, 0], [0.5, 0.5]]


def test_messages_to_training_nodes_alone() -> None:
    batch = GraphBatch([small_graph(), random_graph(5, features=2)])
    every, training = batch.structure, batch.training.structure
    assert training.receives.tolist() == batch.splits[:, 0].tolist()
    h = torch.arange(30.0).view(2, 5, 3)
    for whole, partly in ((every.gcn, training.gcn), (every.mean, training.mean), (every.total, training.total)):
        assert partly(h)[0].tolist() == [whole(h)[0, 0].tolist(), [0, 0, 0]]
        assert partly(h)[1].equal(whole(h)[1, [0, 3]])
    assert training.own(h)[1].equal(h[1, [0, 3]])


def test_padded_features_are_zero() -> None:
    features = GraphBatch([small_graph(), random_graph(5, features=2)]).features
    assert isinstance(features, GivenDenseFeatures)
    assert features.x[0].tolist() == [[1, 2], [3, 4], [0, 0], [0, 0], [0, 0]]


@pytest.mark.parametrize(("nonzero", "kind"), [(15, SparseFeatures), (16, GivenDenseFeatures)])
@pytest.mark.parametrize("stored_sparse", [True, False])
def test_sparse_features_up_to_a_share_of_nonzeros(nonzero: int, kind: type, stored_sparse: bool) -> None:
    assert SPARSE_SHARE == 0.15
    x = np.zeros((10, 10), np.float32)
    x.flat[:nonzero] = 1.0
    graph = replace(random_graph(10, features=10), x=sp.csr_array(x) if stored_sparse else x)
    assert type(GraphBatch([graph]).features) is kind


def test_sparse_and_dense_features_give_the_same_product() -> None:
    graphs = [random_graph(7, sparse=True), random_graph(4, seed=1)]
    as_dense = [replace(g, x=g.x.toarray() if g.is_sparse else g.x) for g in graphs]
    weight = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0))
    mixed, dense = GraphBatch(graphs).features.product(weight), GraphBatch(as_dense).features.product(weight)
    torch.testing.assert_close(mixed, dense)
    thin = [replace(g, x=sp.csr_array(np.where(g.x > 0.9, g.x, 0))) for g in as_dense]
    sparse = GraphBatch(thin).features
    assert isinstance(sparse, SparseFeatures)
    padded = torch.zeros(2, 7, 6)
    for row, graph in zip(padded, thin, strict=True):
        row[: graph.num_nodes] = torch.from_numpy(graph.x.toarray())
    torch.testing.assert_close(sparse.product(weight), padded @ weight)


def test_padding_receives_no_messages() -> None:
    batch = GraphBatch([small_graph(), random_graph(5, features=2)])
    passed = batch.structure.total(torch.ones(2, 5, 1))
    assert passed[0].flatten().tolist() == [1, 1, 0, 0, 0]
