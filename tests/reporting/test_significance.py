"""Paired tests with numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fedgkd.reporting.comparison import Cell, compare_runs
from fedgkd.reporting.records import read_records
from fedgkd.reporting.significance import against_best, holm, paired_differences, wilcoxon
from tests.reporting.written import write_run


def cell_of(folder: Path) -> Cell:
    (cell,) = compare_runs(read_records(folder).runs).cells
    return cell


def test_wilcoxon() -> None:
    # All six differences point one way: 2 of 2^6 ways of signs are as extreme.
    assert wilcoxon(np.array([0.01, 0.02, 0.03, 0.04, 0.05, 0.06])) == pytest.approx(2 / 64)
    assert wilcoxon(np.zeros(5)) == 1.0
    assert wilcoxon(np.array([1e-16, -1e-16, 0.0])) == 1.0


def test_wilcoxon_with_ties() -> None:
    # Ranks 1.5, 1.5 and 3, of which the positive ones sum to 4.5: so do three of eight ways of signs, or more.
    assert wilcoxon(np.array([0.1, -0.1, 0.2])) == pytest.approx(2 * 3 / 8)
    # The same differences, as floating point has them, are ties all the same.
    assert wilcoxon(np.array([0.3 - 0.2, 0.7 - 0.8, 0.2])) == pytest.approx(2 * 3 / 8)
    assert wilcoxon(np.array([0.1, 0.0, -0.1, 0.2])) == pytest.approx(2 * 3 / 8)


@pytest.mark.parametrize("pairs", [12, 1000])
def test_wilcoxon_agrees_with_scipy(pairs: int) -> None:
    differences = np.random.default_rng(0).normal(0.1, 1, pairs)
    assert wilcoxon(differences) == pytest.approx(stats.wilcoxon(differences).pvalue)


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


def test_pairs_are_the_same_client_of_the_same_seed(tmp_path: Path) -> None:
    write_run(tmp_path / "a0", "fedgkd", 0, [0.9, None, 0.7])
    write_run(tmp_path / "a1", "fedgkd", 1, [0.8, 0.8, 0.8])
    write_run(tmp_path / "a2", "fedgkd", 2, [0.8, 0.8, 0.8])
    write_run(tmp_path / "b0", "local", 0, [0.6, 0.5, 0.8])
    write_run(tmp_path / "b1", "local", 1, [0.7, 0.7, 0.7], result={"partition_hash": "other clients"})
    local, fedgkd = cell_of(tmp_path).entries
    assert paired_differences(fedgkd, local).tolist() == pytest.approx([0.3, -0.1])


def test_every_method_against_the_best(tmp_path: Path) -> None:
    better = [0.61, 0.72, 0.83, 0.64, 0.75, 0.86]
    write_run(tmp_path / "a", "fedgkd", 0, better)
    write_run(tmp_path / "b", "local", 0, [accuracy - 0.01 * (k + 1) for k, accuracy in enumerate(better)])
    write_run(tmp_path / "c", "fedavg", 0, [*better[:5], better[5] - 0.001])
    write_run(tmp_path / "d", "centralised", 0, [0.99] * 6)
    tests = against_best(cell_of(tmp_path))
    assert set(tests) == {"local", "fedavg"}
    assert tests["local"].against.method.title == "FedGKD"
    assert tests["local"].pairs == 6
    assert tests["local"].p == pytest.approx(2 * 2 / 64)  # the smaller of two
    assert tests["fedavg"].p == 1.0
    assert not tests["local"].significant


def test_an_oracle_alone_is_tested_against_nobody(tmp_path: Path) -> None:
    write_run(tmp_path / "d", "centralised")
    assert against_best(cell_of(tmp_path)) == {}
