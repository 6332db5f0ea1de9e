from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from fedgkd.collaboration import mix, spearman, uniform, weighted


def test_mix_is_a_matrix_product_over_clients() -> None:
    weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]], dtype=torch.float64)
    mixed = mix(weights, {"w": torch.tensor([[[4.0, 8.0]], [[0.0, 4.0]]])})
    assert mixed["w"].tolist() == [[[4.0, 8.0]], [[1.0, 5.0]]]
    assert mixed["w"].dtype == torch.float32


def test_uniform_and_weighted() -> None:
    assert uniform(2).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert weighted(torch.tensor([1.0, 3.0])).tolist() == [[0.25, 0.75], [0.25, 0.75]]


def test_spearman_equals_scipy_with_ties() -> None:
    draw = np.random.default_rng(0)
    relation = draw.integers(0, 5, (7, 7)).astype(float)
    divergence = draw.integers(0, 5, (7, 7)).astype(float)
    pairs = np.triu_indices(7, 1)
    expected = spearmanr(relation[pairs], -divergence[pairs]).statistic
    assert spearman(relation, divergence) == pytest.approx(expected)
    assert np.isnan(spearman(np.ones((3, 3)), divergence[:3, :3]))
