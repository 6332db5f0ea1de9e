from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.linalg import expm

from fedgkd.collaboration import KERNELS, has_structure, kernel_matrix, leading_eigenvalue, row_softmax
from fedgkd.collaboration.kernels import _largest_centred, effective_resistance
from fedgkd.errors import SettingError


def _relation(n: int, seed: int = 0) -> torch.Tensor:
    z = torch.randn(n, 3 * n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    z /= z.norm(dim=1, keepdim=True)
    return (z @ z.T).fill_diagonal_(1.0)


def test_the_papers_example() -> None:
    """r = (0.01, 0.9, 0.9) and τ = 0.5 give s = (0.18, 0.79, 0.79), figure 'connectivities'."""
    relation = torch.tensor([[1.0, 0.01, 0.9], [0.01, 1.0, 0.9], [0.9, 0.9, 1.0]])
    s = kernel_matrix(relation, "exponential", tau=0.5)
    assert float(s[0, 1]) == pytest.approx(0.18, abs=0.005)
    assert float(s[0, 2]) == pytest.approx(0.79, abs=0.006)
    assert float(s[1, 2]) == pytest.approx(0.79, abs=0.006)


@pytest.mark.parametrize("tau", [0.0, 0.05, 0.5, 3.0])
def test_exponential_equals_scipy(tau: float) -> None:
    relation = _relation(6)
    expected = expm(tau * relation.numpy())
    np.testing.assert_allclose(kernel_matrix(relation, "exponential", tau), expected, rtol=1e-10, atol=1e-12)
    without = kernel_matrix(relation, "exponential", tau, identity_term=False)
    np.testing.assert_allclose(without, expected - np.eye(6), rtol=1e-10, atol=1e-12)


def test_local_square_uniform() -> None:
    relation = _relation(4)
    assert kernel_matrix(relation, "local").equal(relation)
    torch.testing.assert_close(kernel_matrix(relation, "square"), relation @ relation)
    assert row_softmax(kernel_matrix(relation, "uniform"), 3.0).tolist() == [[0.25] * 4] * 4


def test_row_softmax_of_rows_by_hand() -> None:
    """Rows of their own scale, and so large that only differences within a row can be told."""
    q = row_softmax(torch.tensor([[0.0, 0.5 * math.log(3.0)], [7.0, 7.0]], dtype=torch.float64), 2.0)
    torch.testing.assert_close(q, torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64))
    huge = torch.tensor([[1e308, 0.0], [0.5 * math.log(3.0), 0.0]], dtype=torch.float64)
    expected = torch.tensor([[1.0, 0.0], [0.75, 0.25]], dtype=torch.float64)
    torch.testing.assert_close(row_softmax(huge, 2.0), expected)


def test_the_largest_exponent_is_capped() -> None:
    """Of one client alone the kernel is exp(τ), less 1 without the identity; both are exp(600) at most."""
    alone = torch.ones(1, 1)
    assert float(kernel_matrix(alone, "exponential", 0.5, identity_term=False)) == pytest.approx(math.exp(0.5) - 1)
    for tau in (600.0, 1300.0, 1e6):
        for identity in (True, False):
            assert float(kernel_matrix(alone, "exponential", tau, identity)) == pytest.approx(math.exp(600.0))


def _groups(n: int, size: int, inside: float, outside: float) -> torch.Tensor:
    """Groups of clients that are more alike than the others."""
    group = torch.arange(n) // size
    same = (group[:, None] == group).double()
    return (outside + (inside - outside) * same).fill_diagonal_(1.0)


def test_centred_equals_scipy() -> None:
    relation = _relation(6).numpy()
    centring = np.eye(6) - 1 / 6
    grown = expm(0.7 * centring @ relation @ centring)
    expected = grown / np.sqrt(np.outer(np.diag(grown), np.diag(grown)))
    np.testing.assert_allclose(kernel_matrix(torch.from_numpy(relation), "centred", 0.7), expected, rtol=1e-10)


def test_centred_does_not_see_what_all_have_in_common() -> None:
    relation = _relation(6)
    torch.testing.assert_close(kernel_matrix(0.5 + 0.5 * relation, "centred", 2.0), kernel_matrix(relation, "centred"))


@pytest.mark.parametrize("n", [10, 30, 50])
def test_centred_gives_to_the_group_whatever_the_number_of_clients(n: int) -> None:
    """The paper's does not: with a τ that is small enough for many clients, strangers count as much."""
    relation = _groups(n, 5, inside=0.98, outside=0.4)
    group, strangers = slice(1, 5), slice(5, None)
    q = row_softmax(kernel_matrix(relation, "centred", 1.0), 3.0)[0]
    assert q[0] > q[group].max() > 5 * q[strangers].max()
    papers = row_softmax(kernel_matrix(relation, "exponential", 0.05), 3.0)[0]
    assert papers[group].max() < 1.2 * papers[strangers].max()


def test_tau_zero_is_nearly_fedavg_and_large_tau_is_personal() -> None:
    relation = torch.eye(4) + 0.1 * (1 - torch.eye(4))
    nearly = row_softmax(kernel_matrix(relation, "exponential", 1e-9, identity_term=False), 3.0)
    torch.testing.assert_close(nearly, torch.full((4, 4), 0.25, dtype=torch.float64), atol=1e-6, rtol=0)
    personal = row_softmax(kernel_matrix(relation, "exponential", 10.0), 3.0)
    assert personal.diagonal().min() > 0.999


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("tau", [0.05, 1.0, 1e6])
@pytest.mark.parametrize("n", [1, 2, 50])
def test_rows_sum_to_one_without_overflow(kernel: str, tau: float, n: int) -> None:
    for relation in (_relation(n), torch.ones(n, n, dtype=torch.float64), torch.eye(n, dtype=torch.float64)):
        for normalise in (False, True):
            s = kernel_matrix(relation, kernel, tau, normalise=normalise)
            assert s.isfinite().all()
            q = row_softmax(s, 1e3)
            torch.testing.assert_close(q.sum(1), torch.ones(n, dtype=torch.float64))
            assert (q >= 0).all()


def test_a_thousand_clients() -> None:
    q = row_softmax(kernel_matrix(_relation(1000), "exponential", 1.0), 9.0)
    torch.testing.assert_close(q.sum(1), torch.ones(1000, dtype=torch.float64))


def test_normalised_kernel_has_a_unit_diagonal_at_any_tau() -> None:
    for tau in (0.1, 50.0, 5000.0):
        s = kernel_matrix(_relation(20), "exponential", tau, normalise=True)
        torch.testing.assert_close(s.diagonal(), torch.ones(20, dtype=torch.float64))


def test_effective_resistance_of_a_path_and_of_separate_parts() -> None:
    """Unit resistors in a row add up; nothing connects the fourth client."""
    relation = torch.eye(4, dtype=torch.float64)
    relation[0, 1] = relation[1, 0] = relation[1, 2] = relation[2, 1] = 1.0
    relation[0, 3] = relation[3, 0] = -0.5
    omega = effective_resistance(relation)
    assert float(omega[0, 1]) == pytest.approx(1.0)
    assert float(omega[0, 2]) == pytest.approx(2.0)
    assert torch.isinf(omega[0, 3])
    assert kernel_matrix(relation, "effective_resistance")[0].tolist() == pytest.approx([1.0, 1 / 2, 1 / 3, 0.0])


def test_effective_resistance_of_a_triangle_of_unit_resistors() -> None:
    """One resistor beside two in a row: 1 / (1 + 1/2)."""
    omega = effective_resistance(torch.ones(3, 3, dtype=torch.float64))
    expected = 2 / 3 * (1 - torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(omega, expected)


def test_unknown_kernel() -> None:
    with pytest.raises(SettingError, match="kernel must be one of"):
        kernel_matrix(_relation(3), "cubic")


def test_structure_is_told_from_chance() -> None:
    """Two groups are found; pairs in random order are called structure about as often as the quantile allows."""
    assert has_structure(_groups(10, 5, 0.5, 0.1), np.random.default_rng(0))
    assert not has_structure(torch.full((10, 10), 0.4).fill_diagonal_(1.0), np.random.default_rng(0))
    draw = np.random.default_rng(1)
    found = 0
    for _ in range(60):
        relation = torch.from_numpy(draw.normal(size=(10, 10)))
        found += has_structure((relation + relation.T) / 2, draw)
    assert found <= 9, "5 % of 60 are 3"


def test_leading_eigenvalue_of_two_groups_by_hand() -> None:
    """Of 2 k clients, r inside and s between groups: 1 + (k - 1) r - k s."""
    assert leading_eigenvalue(_groups(8, 4, 0.5, 0.1)) == pytest.approx(1 + 3 * 0.5 - 4 * 0.1)


def test_the_largest_eigenvalue_of_the_centred_pairs_by_hand() -> None:
    """[0 6 3; 6 0 0; 3 0 0] centred is [−4 3 1; 3 −2 −1; 1 −1 0], whose eigenvalues are 0 and −3 ± √12."""
    largest = _largest_centred(np.array([6.0, 3.0, 0.0]), np.triu_indices(3, k=1), 3)
    assert largest == pytest.approx(12**0.5 - 3)
