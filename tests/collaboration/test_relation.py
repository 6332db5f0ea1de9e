from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedgkd.collaboration import both, centred, correlation, cosine, weighted_cosine


def test_correlation_equals_numpy_column_by_column() -> None:
    features = torch.randn(4, 7, 11, generator=torch.Generator().manual_seed(0))
    found = correlation(features)
    m = features.numpy()
    for i in range(4):
        for j in range(4):
            columns = [np.corrcoef(m[i, :, k], m[j, :, k])[0, 1] for k in range(11)]
            expected = 1.0 if i == j else np.mean(columns)
            assert float(found[i, j]) == pytest.approx(expected, abs=1e-6)


def test_a_constant_column_counts_as_zero_never_nan() -> None:
    features = torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(1))
    features[1, :, 0] = 0.1  # not exactly representable, so centring leaves rounding behind
    found = correlation(features)
    expected = np.corrcoef(features[0, :, 1].numpy(), features[1, :, 1].numpy())[0, 1] / 2
    assert float(found[0, 1]) == pytest.approx(expected, abs=1e-6)
    assert correlation(torch.ones(3, 5, 2)).equal(torch.eye(3, dtype=torch.float64))


@pytest.mark.parametrize("relation", [correlation, cosine, centred, both])
def test_symmetric_with_unit_diagonal_and_one_client(relation) -> None:  # type: ignore[no-untyped-def]
    found = relation(torch.randn(6, 4, 3, generator=torch.Generator().manual_seed(2)))
    assert found.equal(found.T)
    assert found.diagonal().equal(torch.ones(6, dtype=torch.float64))
    assert relation(torch.randn(1, 4, 3)).tolist() == [[1.0]]


def test_cosine_of_zero_features_is_zero() -> None:
    features = torch.zeros(2, 2, 2)
    features[0] = 1.0
    assert cosine(features).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_both_sees_what_either_sees() -> None:
    features = torch.tensor([[[0.8, 0.2], [0.6, 0.4]], [[0.6, 0.4], [0.8, 0.2]], [[0.2, 0.8], [0.1, 0.9]]])
    mixed = 0.75 * cosine(features) + 0.25 * correlation(features)
    torch.testing.assert_close(both(features), mixed)
    assert float(cosine(features)[0, 1]) > 0.9  # both expect the first class
    assert float(correlation(features)[0, 1]) < -0.9  # of opposite nodes
    assert -0.9 < float(both(features)[0, 1]) < 0.9


def test_centred_is_the_cosine_of_what_differs_from_the_mean() -> None:
    features = torch.tensor([[[13.0], [10.0]], [[10.0], [13.0]], [[10.0], [10.0]]])
    # Without the mean (11, 11): (2, −1), (−1, 2), (−1, −1).
    a, b = -4 / 5, -1 / 10**0.5
    expected = torch.tensor([[1, a, b], [a, 1, b], [b, b, 1]], dtype=torch.float64)
    torch.testing.assert_close(centred(features), expected)
    assert float(cosine(features)[0, 1]) > 0.9  # what they have in common hides it


@pytest.mark.parametrize("clients", [1, 2, 3, 7])
def test_centred_equal_clients_relate_to_nobody(clients: int) -> None:
    features = torch.full((clients, 2, 3), 0.1)  # not exactly representable, so a mean in float32 may be off
    assert centred(features).equal(torch.eye(clients, dtype=torch.float64))


def test_weighted_cosine_by_hand() -> None:
    """Class 0 of 2 and 6 nodes weighs 1.5, class 1 of 1 and 1 node 0.5; class 2 is told by one client only."""
    first = torch.tensor([[1.0, 0.0], [0.0, 2.0], [5.0, 5.0]])
    second = torch.tensor([[1.0, 1.0], [0.0, -1.0], [0.0, 0.0]])
    counts = torch.tensor([[2.0, 1.0, 4.0], [6.0, 1.0, 0.0]])
    inner = 1.5 * 1.0 + 0.5 * -2.0
    norm = math.sqrt((1.5 * 1.0 + 0.5 * 4.0) * (1.5 * 2.0 + 0.5 * 1.0))
    relation = weighted_cosine(torch.stack([first, second]), counts)
    assert relation.tolist() == [[1.0, pytest.approx(inner / norm)], [pytest.approx(inner / norm), 1.0]]


def test_without_a_class_in_common_there_is_no_relation() -> None:
    features = torch.ones(2, 2, 3)
    assert weighted_cosine(features, torch.tensor([[1.0, 0.0], [0.0, 1.0]])).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_cosine_by_hand() -> None:
    # As rows of four numbers: norms 5, 10, √5 and 5.
    features = torch.tensor(
        [[[1.0, 2], [2, 4]], [[2.0, 4], [4, 8]], [[2.0, -1], [0, 0]], [[4.0, 2], [2, 1]]], dtype=torch.float64
    )
    d = 6 / (5 * 5**0.5)
    expected = [[1, 1, 0, 0.64], [1, 1, 0, 0.64], [0, 0, 1, d], [0.64, 0.64, d, 1]]
    torch.testing.assert_close(cosine(features), torch.tensor(expected, dtype=torch.float64))


def test_both_by_hand() -> None:
    """One column, (1, 2, 3) and (3, 1, 2): cosine 11/14 and correlation −1/2."""
    features = torch.tensor([[[1.0], [2], [3]], [[3.0], [1], [2]]], dtype=torch.float64)
    assert float(both(features)[0, 1]) == pytest.approx(0.75 * 11 / 14 - 0.25 * 0.5)


def test_centred_takes_away_the_mean_of_each_number() -> None:
    features = torch.tensor([[[12.0], [1.0]], [[10.0], [3.0]], [[11.0], [2.0]]])
    # Without the mean (11, 2): (1, −1), (−1, 1) and nothing.
    torch.testing.assert_close(
        centred(features), torch.tensor([[1, -1, 0], [-1, 1, 0], [0, 0, 1]], dtype=torch.float64)
    )


def test_a_column_is_constant_by_its_own_measure() -> None:
    """Neither rounding of a thousand equal values is a signal, nor small values beside large ones noise."""
    assert correlation(torch.full((2, 1000, 1), 0.1)).equal(torch.eye(2, dtype=torch.float64))
    small = torch.tensor([[1.0, 2, 3], [3.0, 1, 2]]) * 1e-3
    features = torch.stack([small, torch.full((2, 3), 1e6)], dim=2)
    assert float(correlation(features)[0, 1]) == pytest.approx(-0.5 / 2)  # the second column counts as 0


@pytest.mark.parametrize("relation", [correlation, cosine])
def test_rounding_takes_nobody_beyond_one(relation) -> None:  # type: ignore[no-untyped-def]
    base = torch.randn(40, 1, 5, 3, generator=torch.Generator().manual_seed(3))
    for pair in base * torch.tensor([1.0, 3.0, -7.0]).view(3, 1, 1):
        found = relation(pair)
        assert -1.0 <= found.min() <= -0.99999
        assert 0.99999 <= found[0, 1] <= 1.0


def test_weighted_cosine_is_of_no_scale_and_in_float64() -> None:
    prototypes = torch.tensor([[[1.0, 0.0]], [[1.0, 1.0]]])
    counts = torch.tensor([[3.0], [2.0]])
    for scale in (1e-4, 1.0, 1e4):
        relation = weighted_cosine(scale * prototypes, counts)
        assert relation.dtype == torch.float64
        assert float(relation[0, 1]) == pytest.approx(0.5**0.5, abs=1e-12)
