from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from fedgkd.collaboration import auc, effective_donors, mix, spearman, uniform, weighted, with_own_share
from fedgkd.collaboration.mixing import _COLUMNS


def test_mix_is_a_matrix_product_over_clients() -> None:
    weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]], dtype=torch.float64)
    mixed = mix(weights, {"w": torch.tensor([[[4.0, 8.0]], [[0.0, 4.0]]])})
    assert mixed["w"].tolist() == [[[4.0, 8.0]], [[1.0, 5.0]]]
    assert mixed["w"].dtype == torch.float32


def test_models_longer_than_a_part_of_the_columns_are_mixed_whole() -> None:
    longest = 3 * _COLUMNS - 5
    models = torch.stack([torch.arange(longest, dtype=torch.float32), torch.ones(longest)])
    mixed = mix(torch.tensor([[0.5, 0.5], [0.0, 1.0]]), {"w": models})["w"]
    assert mixed[0].equal(0.5 * torch.arange(longest) + 0.5)
    assert mixed[1].equal(torch.ones(longest))


def test_equal_rows_are_mixed_once_and_share_their_memory() -> None:
    weights = torch.tensor([[0.25, 0.75, 0.0]] * 3, dtype=torch.float64)
    mixed = mix(weights, {"w": torch.tensor([[[4.0, 8.0]], [[0.0, 4.0]], [[99.0, 99.0]]])})["w"]
    assert mixed.tolist() == [[[1.0, 5.0]]] * 3
    assert mixed.stride(0) == 0
    weights[2] = torch.tensor([0.0, 0.0, 1.0])
    assert mix(weights, {"w": torch.tensor([[1.0], [2.0], [3.0]])})["w"].tolist() == [[1.75], [1.75], [3.0]]


def test_uniform_and_weighted() -> None:
    assert uniform(2).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert weighted(torch.tensor([1.0, 3.0])).tolist() == [[0.25, 0.75], [0.25, 0.75]]
    assert weighted(torch.tensor([1.0, 3.0])).is_contiguous()
    assert {uniform(3).dtype, weighted(torch.ones(3)).dtype} == {torch.float64}


def test_spearman_equals_scipy_with_ties() -> None:
    draw = np.random.default_rng(0)
    relation = draw.integers(0, 5, (7, 7)).astype(float)
    divergence = draw.integers(0, 5, (7, 7)).astype(float)
    pairs = np.triu_indices(7, 1)
    expected = spearmanr(relation[pairs], -divergence[pairs]).statistic
    assert spearman(relation, divergence) == pytest.approx(expected)
    assert np.isnan(spearman(np.ones((3, 3)), divergence[:3, :3]))


def test_an_own_share_leaves_the_rest_to_the_partners() -> None:
    partners = torch.tensor([[9.0, 1.0, 3.0], [1.0, 9.0, 1.0], [0.0, 2.0, 9.0]], dtype=torch.float64)
    assert with_own_share(partners, 0.2).tolist() == [[0.2, 0.2, pytest.approx(0.6)], [0.4, 0.2, 0.4], [0.0, 0.8, 0.2]]
    assert with_own_share(partners[:1, :1], 0.2).tolist() == [[1.0]], "who is alone keeps its own"


def test_effective_donors_are_counted_by_hand() -> None:
    assert effective_donors(uniform(8)) == pytest.approx(8.0)
    assert effective_donors(torch.eye(5)) == pytest.approx(5.0)
    one_for_all = torch.zeros(4, 4)
    one_for_all[:, 2] = 1.0
    assert effective_donors(one_for_all) == pytest.approx(1.0)
    half = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])
    assert effective_donors(half) == pytest.approx(2.0)


def test_auc_by_hand() -> None:
    """Pairs of one group have 0.9 and 0.3, pairs of two 0.3, 0.5, 0.1 and 0.2: of eight comparisons 6.5 are won."""
    relation = np.eye(4)
    for (i, j), value in {(0, 1): 0.9, (2, 3): 0.3, (0, 2): 0.3, (0, 3): 0.5, (1, 2): 0.1, (1, 3): 0.2}.items():
        relation[i, j] = relation[j, i] = value
    assert auc(relation, ["a", "a", "b", "b"]) == pytest.approx(6.5 / 8)
    assert np.isnan(auc(relation, ["a"] * 4))
    assert np.isnan(auc(relation, list("abcd")))


def test_spearman_by_hand() -> None:
    """Four pairs of ranks (1, 2.5, 2.5, 4, 5, 6) and (1, 2, 3, 4, 5, 6): one tie costs half a rank twice."""
    relation, divergence = np.zeros((4, 4)), np.zeros((4, 4))
    pairs = np.triu_indices(4, 1)
    relation[pairs] = [0.1, 0.2, 0.2, 0.4, 0.5, 0.6]
    divergence[pairs] = [6, 5, 4, 3, 2, 1]
    assert spearman(relation, divergence) == pytest.approx(17.0 / (17.0 * 17.5) ** 0.5)
    assert spearman(-relation, divergence) == pytest.approx(-17.0 / (17.0 * 17.5) ** 0.5)
    relation[1, 0] = divergence[2, 0] = 99.0  # below the diagonal nothing counts
    assert spearman(relation, divergence) == pytest.approx(17.0 / (17.0 * 17.5) ** 0.5)


def test_spearman_of_too_little() -> None:
    three = np.array([[0.0, 1.0, 2.0], [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]])
    assert np.isnan(spearman(three[:2, :2], three[:2, :2])), "one pair"
    assert np.isnan(spearman(three, np.ones((3, 3))))
    assert spearman(three, -three) == pytest.approx(1.0)
