"""Keeps the test accuracy by rounds, from the runs of the convergence study: results/convergence.csv.

.venv/bin/python -m scripts.convergence convergence
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd

from fedgkd.atomic import atomic_write_text
from fedgkd.errors import FedGKDError, RunError
from fedgkd.reporting import load_rounds
from fedgkd.reporting.methods import method_position, method_title
from scripts.evidence import GRAPHS, RESULTS

RECORD = RESULTS / "convergence.csv"
NEAR = 0.01
"""A method has converged once it is that near to the best that it will reach."""
DIGITS = 4
"""Of an accuracy in the file."""


def keep(runs: Path, file: Path = RECORD) -> None:
    """A row for every round, a column for every graph and algorithm, the mean over seeds.

    Raises:
        RunError: If there are no runs, or not all have as many rounds: their means would be of other runs in each.
    """
    rounds = load_rounds(runs)
    if rounds.groupby("run")["round"].max().nunique() > 1:
        raise RunError(f"{runs}: some runs have fewer rounds than others; make them with --set patience=0")
    table = rounds.pivot_table("test_accuracy", "round", ["dataset", "algorithm"])
    table.columns = [" ".join(column) for column in table.columns]
    atomic_write_text(file, table.to_csv(float_format=f"%.{DIGITS}f"), RunError)


def lines(file: Path) -> list[str]:
    """A row of a table for every method: for each graph the round by which it had converged, and its best accuracy."""
    table = pd.read_csv(file, index_col="round")
    methods = sorted({column.partition(" ")[2] for column in table.columns}, key=method_position)
    columns = [[table[f"{graph} {method}"] for graph in GRAPHS] for method in methods]
    return [
        f"| {method_title(method)} | {' | '.join(map(_cell, curves))} |\n"
        for method, curves in zip(methods, columns, strict=True)
    ]


def _cell(accuracy: pd.Series[float]) -> str:
    best = accuracy.max()
    near = accuracy >= round(best - NEAR, DIGITS)
    return f"{accuracy.index[near][0]}, {100 * best:.1f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="scripts.convergence", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", type=Path, help="the folder of the runs")
    try:
        keep(parser.parse_args().runs)
    except FedGKDError as problem:
        sys.exit(f"error: {problem}")
