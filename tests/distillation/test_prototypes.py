"""Class prototypes: by hand on a small graph, and what does not leave a client."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fedgkd.clients import ClientBatch
from fedgkd.data.graph import Graph, undirected
from fedgkd.distillation import prototypes
from tests.graphs import planted_federation


def pairs(y: list[int], train: list[int], x: np.ndarray | None = None) -> Graph:
    """Pairs of nodes, 0 and 1, 2 and 3 …, so that a convolution is the mean of a pair."""
    nodes = len(y)
    edges = undirected(np.arange(nodes).reshape(-1, 2).T, nodes)
    mask = np.isin(np.arange(nodes), train)
    none = np.zeros(nodes, np.bool_)
    features = np.eye(nodes, dtype=np.float32) if x is None else x
    return Graph(features, edges, np.array(y), 3, mask, none, none)


def of(
    *graphs: Graph, size: int = 0, noise: float = 0.0, min_count: int = 1, seed: int = 0
) -> tuple[torch.Tensor, ...]:
    return prototypes(ClientBatch(range(len(graphs)), graphs, seed), size, noise, min_count)


def test_by_hand() -> None:
    """Both nodes of a pair become (e_a + e_b) / √2; the mean of all rows is 1 / (2√2) everywhere."""
    half, mean = 1 / np.sqrt(2), 1 / (2 * np.sqrt(2))
    features, counts = of(pairs([0, 0, 1, 1], train=[0, 2, 3]))
    expected = [[half - mean, half - mean, -mean, -mean], [-mean, -mean, half - mean, half - mean], [0.0] * 4]
    np.testing.assert_allclose(features[0], expected, atol=1e-6)
    assert counts.tolist() == [[1.0, 2.0, 0.0]]


def test_two_convolutions_reach_two_steps() -> None:
    path = Graph(
        np.eye(4, dtype=np.float32),
        undirected(np.array([[0, 1, 2], [1, 2, 3]]), 4),
        np.zeros(4, np.int64),
        2,
        np.array([True, False, False, False]),
        *np.zeros((2, 4), np.bool_),
    )
    loops = np.eye(4) + np.eye(4, k=1) + np.eye(4, k=-1)
    scale = np.diag(1 / np.sqrt(loops.sum(1)))
    h = np.linalg.matrix_power(scale @ loops @ scale, 2)
    h /= np.linalg.norm(h, axis=1, keepdims=True)
    features, _ = of(path)
    np.testing.assert_allclose(features[0, 0], h[0] - h.mean(axis=0), atol=1e-6)
    assert h[0, 2] > 0 == h[0, 3]


def test_only_training_labels_count() -> None:
    known, other = pairs([0, 0, 1, 1], train=[0, 2]), pairs([0, 1, 1, 2], train=[0, 2])
    for one, two in zip(of(known), of(other), strict=True):
        torch.testing.assert_close(one, two)


def test_sparse_and_dense_features_agree() -> None:
    x = np.random.default_rng(0).random((6, 5)).astype(np.float32) * (np.arange(30).reshape(6, 5) % 3 == 0)
    dense, sparse = (pairs([0, 1, 2, 0, 1, 2], [0, 1, 2, 3], kind) for kind in (x, sp.csr_array(x)))
    for one, two in zip(of(dense), of(sparse), strict=True):
        torch.testing.assert_close(one, two)


def test_rare_classes_are_not_told() -> None:
    features, counts = of(pairs([0, 0, 1, 1], train=[0, 2, 3]), min_count=2, noise=0.5)
    assert counts.tolist() == [[0.0, 2.0, 0.0]]
    assert features[0, 0].abs().sum() == 0.0 == features[0, 2].abs().sum()
    assert features[0, 1].abs().sum() > 0


def test_a_projection_is_common_to_all_and_keeps_inner_products_on_average() -> None:
    graphs = planted_federation(3).graphs
    exact = of(*graphs)[0].flatten(1)
    products = torch.stack([(flat := of(*graphs, size=4, seed=k)[0].flatten(1)) @ flat.T for k in range(300)])
    assert of(*graphs, size=4)[0].shape[2] == 4
    torch.testing.assert_close(products.mean(dim=0), exact @ exact.T, atol=0.15, rtol=0.15)
    alone = of(graphs[0], size=4)[0]
    torch.testing.assert_close(of(*graphs, size=4)[0][:1], alone, msg="a client sends the same whoever else is there")


def test_noise_is_repeatable_and_no_function_of_the_seed_alone() -> None:
    one, two = pairs([0, 0, 1, 1], train=[0, 2]), pairs([0, 0, 1, 2], train=[0, 2])
    clean = of(one)[0]
    noisy = of(one, noise=0.3)[0]
    torch.testing.assert_close(noisy, of(one, noise=0.3)[0])
    # The two graphs have the same prototypes, and differ in a label that nobody else knows.
    torch.testing.assert_close(clean, of(two)[0])
    assert not torch.allclose(noisy, of(two, noise=0.3)[0])
    drawn = torch.cat([of(one, noise=0.3, seed=k)[0][0, :2] - clean[0, :2] for k in range(500)])
    assert drawn.norm(dim=1).square().mean().sqrt().item() == pytest.approx(0.3, rel=0.1)
