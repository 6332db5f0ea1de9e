"""The picture of docs/findings.md: how far every method is from the best one of each federation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from fedgkd.reporting.comparison import Cell, Method
from fedgkd.reporting.methods import dataset_title, method_position
from fedgkd.reporting.tables import NOTHING, OURS, summarise

FARTHEST = 5.0
"""Points from the best from which on all are coloured alike."""
PUBLISHED = "FedGKD,\nas published"

# Text stays text, and a file changes only where the picture does.
_LOOK = {"font.size": 7, "svg.fonttype": "none", "svg.hashsalt": "fedgkd"}
_COLOURS = LinearSegmentedColormap.from_list("distance", ["#FFFFFF", "#F6C9A8", "#D55E00"]).with_extremes(bad="#EEEEEE")


def draw_distances(cells: Sequence[Cell], file: Path) -> None:
    """A row for every federation, a column for every method; the best of a row with its accuracy."""
    methods = {entry.method.algorithm: entry.method for cell in cells for entry in cell.entries}
    columns = sorted(methods.values(), key=lambda method: method_position(method.algorithm))
    heads = [*(method.title for method in columns), PUBLISHED]
    with rc_context(_LOOK):
        figure = Figure(figsize=(7.4, 0.2 * len(cells) + 0.6), layout="constrained")
        axes = figure.subplots()
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, labeltop=True, labelbottom=False)
        axes.set_xticks(range(len(heads)), heads, rotation=40, ha="left", rotation_mode="anchor")
        axes.set_yticks(range(len(cells)), [place(cell) for cell in cells])
        axes.get_xticklabels()[[method.algorithm for method in columns].index(OURS)].set_weight("bold")
        figures = [_figures(cell, columns) for cell in cells]
        distances = np.array([[distance for _, distance in row] for row in figures])
        axes.imshow(-distances, cmap=_COLOURS, vmin=0, vmax=FARTHEST, aspect="auto", interpolation="nearest")
        for (row, column), distance in np.ndenumerate(distances):
            weight = "bold" if distance == 0 else "normal"
            axes.text(column, row, figures[row][column][0], ha="center", va="center", weight=weight)
        for row, (above, below) in enumerate(pairwise(cells)):
            if (above.dataset, above.setting) != (below.dataset, below.setting):
                axes.axhline(row + 0.5, color="#888888", linewidth=1.0 if above.dataset != below.dataset else 0.4)
        ranked = sum(method.ranked for method in columns)
        axes.axvline(ranked - 0.5, color="#888888", linewidth=1.0)
        figure.savefig(file, metadata={"Date": None})


def place(cell: Cell) -> str:
    """``Photo, overlapping 30`` for a federation of the paper."""
    overlap = ", overlapping" if cell.setting == "overlapping" else ""
    return f"{short_title(cell.dataset)}{overlap} {cell.clients}"


def short_title(dataset: str) -> str:
    return dataset_title(dataset).removeprefix("Amazon ")


def _figures(cell: Cell, columns: Sequence[Method]) -> list[tuple[str, float]]:
    """What stands in a row, and the distance to the best in points: NaN where there is no figure."""
    best = cell.best()
    assert best is not None
    rows = {row.algorithm: row for row in summarise(cell)}
    found = [
        (row.test_accuracy, row.worse) if row else None for row in (rows.get(method.algorithm) for method in columns)
    ]
    paper = rows[OURS].paper
    found.append(None if math.isnan(paper) else (paper, False))
    return [_figure(each, best.mean()) for each in found]


def _figure(found: tuple[float, bool] | None, best: float) -> tuple[str, float]:
    if found is None:
        return NOTHING, math.nan
    accuracy, worse = found
    distance = 100 * (accuracy - best)
    if distance == 0:
        return f"{100 * accuracy:.1f}", distance
    return f"{distance:+.1f}".replace("-", "−") + "*" * worse, distance
