"""Test accuracy by rounds, from the runs of the convergence study into a file: results/convergence.csv."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from fedgkd.reporting import load_rounds
from fedgkd.reporting.methods import method_position, method_title
from scripts.evidence import GRAPHS, RESULTS

RECORD = RESULTS / "convergence.csv"
NEAR = 0.01
"""A run has converged once it is that near to the best that it will reach."""


def keep(runs: Path, file: Path = RECORD) -> None:
    """A row for every round, a column for every graph and algorithm."""
    rounds = load_rounds(runs)
    table = rounds.pivot_table("test_accuracy", "round", ["dataset", "algorithm"])
    table.columns = [f"{dataset} {algorithm}" for dataset, algorithm in table.columns]
    table.round(4).to_csv(file)


def lines(file: Path) -> list[str]:
    """A row of a table for every method: for each graph when it had converged, and its best."""
    table = pd.read_csv(file, index_col="round")
    names = {column.partition(" ")[2] for column in table.columns}
    rows = sorted(names, key=method_position)
    return [
        f"| {method_title(name)} | {' | '.join(_cell(table[f'{graph} {name}']) for graph in GRAPHS)} |\n"
        for name in rows
    ]


def _cell(accuracy: pd.Series[float]) -> str:
    best = accuracy.max()
    return f"{accuracy.index[accuracy >= best - NEAR][0]}, {100 * best:.1f}"


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
