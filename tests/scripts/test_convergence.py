"""The curves of the convergence study, kept in a file, and their table."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedgkd.errors import RunError
from scripts.convergence import keep, lines
from scripts.evidence import GRAPHS
from tests.reporting.written import write_run


def test_it_keeps_the_means_over_seeds_and_finds_when_they_had_converged(tmp_path: Path) -> None:
    """The runs rise by a point a round to 80 and 90 %, so that a round before the last they are near."""
    for graph in GRAPHS:
        for seed in range(2):
            for algorithm in ("fedgkd", "local"):
                folder = tmp_path / "runs" / f"{graph}-{algorithm}-{seed}"
                write_run(folder, algorithm, seed, [0.8 + 0.1 * seed] * 3, rounds=6, dataset=graph)
    keep(tmp_path / "runs", tmp_path / "curves.csv")
    header, first, *_, last = (tmp_path / "curves.csv").read_text().splitlines()
    assert header.split(",")[:2] == ["round", "citeseer fedgkd"]
    assert (first.split(",")[:2], last.split(",")[:2]) == (["1", "0.8000"], ["6", "0.8500"])
    assert lines(tmp_path / "curves.csv") == [
        "| Local | 5, 85.0 | 5, 85.0 | 5, 85.0 | 5, 85.0 | 5, 85.0 |\n",
        "| FedGKD | 5, 85.0 | 5, 85.0 | 5, 85.0 | 5, 85.0 | 5, 85.0 |\n",
    ]


def test_runs_of_unequal_length_are_refused(tmp_path: Path) -> None:
    """Late rounds would be means over other runs than early ones."""
    for seed, rounds in enumerate((6, 5)):
        write_run(tmp_path / "runs" / str(seed), "local", seed, rounds=rounds)
    with pytest.raises(RunError, match="some runs have fewer rounds than others; make them with --set patience=0"):
        keep(tmp_path / "runs", tmp_path / "curves.csv")
    assert not (tmp_path / "curves.csv").exists()
