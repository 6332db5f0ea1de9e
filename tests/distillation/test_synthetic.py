"""The synthetic graph: common start, sampled edges, labels that stay distributions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedgkd.distillation import common_start
from fedgkd.distillation.synthetic import edge_noise, project_to_simplex, sample_edges


def test_everybody_starts_from_the_same_graph() -> None:
    start = common_start(seed=3, clients=2, nodes_per_class=2, num_classes=3, num_features=1000, scale=0.1)
    assert start.x.shape == (2, 6, 1000)
    assert start.x[0].equal(start.x[1])
    assert start.x.std().item() == pytest.approx(0.1, rel=0.05)
    assert start.y[0].argmax(-1).tolist() == [0, 0, 1, 1, 2, 2]
    assert start.y.sum(-1).eq(1).all()
    again = common_start(seed=3, clients=1, nodes_per_class=2, num_classes=3, num_features=1000, scale=0.1)
    assert again.x[0].equal(start.x[0])
    assert not common_start(4, 1, 2, 3, 1000, 0.1).x.equal(again.x)


def test_the_start_of_one_client_can_change_without_the_others() -> None:
    start = common_start(seed=0, clients=2, nodes_per_class=1, num_classes=2, num_features=3, scale=1.0)
    start.x[0] = 0.0
    assert start.x[1].any()


def test_noise_is_symmetric_common_and_none_on_the_diagonal() -> None:
    noise = edge_noise(seed=1, round_=2, steps=3, rows=5)
    assert len(noise) == 3
    for step in noise:
        assert step.shape == (5, 5)
        assert step.equal(step.T)
        assert not step.diagonal().any()
    assert not noise[0].equal(noise[1])
    assert all(a.equal(b) for a, b in zip(noise, edge_noise(1, 2, 3, 5), strict=True))
    assert not noise[0].equal(edge_noise(1, 3, 3, 5)[0])


def test_noise_is_logistic() -> None:
    upper = np.triu_indices(300, k=1)
    values = edge_noise(seed=0, round_=1, steps=1, rows=300)[0].numpy()[upper]
    assert values.mean() == pytest.approx(0.0, abs=0.05)
    assert values.var() == pytest.approx(np.pi**2 / 3, rel=0.03)
    assert (values > np.log(3)).mean() == pytest.approx(1 / 4, abs=0.01)


def features(rows: int = 6) -> torch.Tensor:
    return torch.randn(2, rows, 4, generator=torch.Generator().manual_seed(0))


def adjacency(x: torch.Tensor, noise: torch.Tensor, gamma: float = 0.5, tau_g: float = 1.0) -> torch.Tensor:
    """The adjacency as messages see it: the sum over the neighbours of the unit vectors."""
    structure = sample_edges(x, noise, gamma, tau_g)
    return structure.total(torch.eye(x.shape[1]).expand(len(x), -1, -1))


def test_edges_are_symmetric_zero_or_one_and_no_loops() -> None:
    edges = adjacency(features(), edge_noise(0, 1, 1, 6)[0])
    assert edges.equal(edges.transpose(1, 2))
    assert set(edges.unique().tolist()) == {0.0, 1.0}
    assert not edges.diagonal(dim1=1, dim2=2).any()
    assert not edges[0].equal(edges[1])  # other features, other edges


def test_an_edge_is_where_the_product_and_the_noise_exceed_gamma() -> None:
    x = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])
    silent = torch.zeros(3, 3)
    assert adjacency(x, silent, gamma=0.5)[0].tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert not adjacency(x, silent, gamma=1.5).any()
    assert adjacency(x, silent + 2.0, gamma=1.5)[0].sum() == 6


def test_gradients_pass_through_the_sampled_edges_as_through_the_sigmoid() -> None:
    x, noise = features().requires_grad_(), edge_noise(0, 1, 1, 6)[0]
    weight = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(1))
    (straight,) = torch.autograd.grad((adjacency(x, noise, tau_g=0.7) * weight).sum(), x)
    off_diagonal = 1.0 - torch.eye(6)
    soft = torch.sigmoid((x @ x.transpose(1, 2) - 0.5 + noise) / 0.7) * off_diagonal
    (expected,) = torch.autograd.grad((soft * weight).sum(), x)
    assert straight.abs().max() > 0.01
    torch.testing.assert_close(straight, expected)


def test_gradients_pass_through_the_degrees() -> None:
    x = features().requires_grad_()
    structure = sample_edges(x, edge_noise(0, 1, 1, 6)[0], 0.5, 1.0)
    (grad,) = torch.autograd.grad(structure.gcn(torch.ones(2, 6, 1)).sum(), x)
    assert grad.isfinite().all()
    assert grad.abs().max() > 0


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5]),  # a distribution stays
        ([0.5, 0.5, 0.5], [1 / 3, 1 / 3, 1 / 3]),
        ([2.0, 0.0, -1.0], [1.0, 0.0, 0.0]),
        ([0.9, 0.5, -3.0], [0.7, 0.3, 0.0]),
        ([-5.0, -5.0, -6.0], [0.5, 0.5, 0.0]),
        ([-2e7, -3e7, -4e7], [1.0, 0.0, 0.0]),  # a 1 would be lost in rounding
        ([-1e30, 1e30, 0.0], [0.0, 1.0, 0.0]),
    ],
)
def test_projection_to_the_nearest_distribution(row: list[float], expected: list[float]) -> None:
    torch.testing.assert_close(project_to_simplex(torch.tensor([[row]])), torch.tensor([[expected]]))


def test_nan_is_projected_to_nan_and_to_no_error() -> None:
    found = project_to_simplex(torch.tensor([[0.2, 0.8], [torch.nan, 0.5]]))
    torch.testing.assert_close(found[0], torch.tensor([0.2, 0.8]))
    assert found[1].isnan().all()


def test_no_distribution_is_nearer_than_the_projection() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(50, 4, generator=generator)
    found = project_to_simplex(rows)
    assert (found >= 0).all()
    torch.testing.assert_close(found.sum(-1), torch.ones(50))
    others = torch.rand(200, 4, generator=generator)
    others = others / others.sum(-1, keepdim=True)
    nearest = torch.cdist(rows, others).amin(1)
    assert ((rows - found).norm(dim=1) <= nearest + 1e-6).all()
