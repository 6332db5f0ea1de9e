"""The heat maps of docs/: every method's distance to the best one, and how well each variant relates the clients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedgkd.reporting.comparison import Cell, Method
from fedgkd.reporting.methods import dataset_title, method_position
from fedgkd.reporting.tables import NOTHING, OURS, summarise

FARTHEST = 5.0
"""Points from the best from which on all are coloured alike."""
PUBLISHED, AT_ITS_BEST = "FedGKD,\nas published", "FedGKD,\n--preset best"

VARIANTS = {
    "default": "our default",
    "FED-PUB": "FED-PUB",
    "paper": "the paper to the letter",
    "paper-averaged": "the paper, mean over rounds",
    "one-round": "of this round alone",
    "ten-rounds": "mean of ten rounds",
    "cosine": "cosine alone",
    "correlation": "correlation alone",
    "centred": "cosine, mean client removed",
    "embedding": "FED-PUB's embedding, cosine",
    "weights": "weights, cosine",
    "updates": "updates, cosine",
    "x-h": "[X ‖ H], correlation",
    "x-h-cosine": "[X ‖ H], cosine",
    "x-h-both": "[X ‖ H], compared as ours",
    "h": "H, correlation",
    "h-cosine": "H, cosine",
    "y": "Y, correlation",
    "x0-0.03": "X0 with rows of norm 1",
    "x0-1": "X0 ~ N(0, 1)",
    "m-5": "five nodes per class",
    "5-probes": "the same, X0 of norm 1, small step",
    "no-step": "no distillation step",
    "5-steps": "five steps",
    "step-0.01": "a tenth of the step",
    "step-1": "ten times the step",
    "10-draws": "mean of ten draws of edges",
    "gamma-5": "γ = 5",
    "local-kernel": "kernel local",
    "square-kernel": "kernel square",
    "centred-kernel": "kernel centred",
}
"""Those of ``fedgkd ablate relation``, and what the picture calls them."""
COMPARED = 4
"""So many of them are whole methods; the others differ from our default in what is said of them."""

# Text stays text, and a file changes only where the picture does.
_LOOK = {"font.size": 7, "svg.fonttype": "none", "svg.hashsalt": "fedgkd"}
_LINE = "#888888"
_DISTANCE = LinearSegmentedColormap.from_list("", ["#FFFFFF", "#F6C9A8", "#D55E00"]).with_extremes(bad="#EEEEEE")
_QUALITY = LinearSegmentedColormap.from_list("", ["#FFFFFF", "#56B4E9"])


def draw_distances(cells: Sequence[Cell], at_its_best: Mapping[str, float], file: Path) -> None:
    """A row for every federation, a column for every method; the best of a row with its accuracy.

    Args:
        at_its_best: FedGKD's accuracy with the preset of that name, by federation.
    """
    methods = {entry.method.algorithm: entry.method for cell in cells for entry in cell.entries}
    columns = sorted(methods.values(), key=lambda method: method_position(method.algorithm))
    figures = [_figures(cell, columns, at_its_best.get(place_of(cell))) for cell in cells]
    distances = np.array([[distance for _, distance in row] for row in figures])
    texts = [[text for text, _ in row] for row in figures]
    heads = [*(method.title for method in columns), PUBLISHED, AT_ITS_BEST]
    with _heat_map(file, heads, list(map(place_of, cells))) as axes:
        axes.get_xticklabels()[[method.algorithm for method in columns].index(OURS)].set_weight("bold")
        _fill(axes, -distances, _DISTANCE, FARTHEST, texts, distances == 0)
        for row, (above, below) in enumerate(pairwise(cells)):
            if (above.dataset, above.setting) != (below.dataset, below.setting):
                axes.axhline(row + 0.5, color=_LINE, linewidth=1.0 if above.dataset != below.dataset else 0.4)
        ranked = sum(method.ranked for method in columns)
        axes.axvline(ranked - 0.5, color=_LINE, linewidth=1.0)


def draw_relation(qualities: Mapping[str, Mapping[str, float]], file: Path) -> None:
    """A row for every variant of :data:`VARIANTS`, a column for every federation and one for their mean.

    Args:
        qualities: By variant and federation.
    """
    federations = list(qualities[next(iter(VARIANTS))])
    table = np.array([[qualities[variant][each] for each in federations] for variant in VARIANTS])
    table = np.column_stack([table, table.mean(axis=1)])
    heads = [*(each.replace(", ", ",\n") for each in federations), "mean"]
    with _heat_map(file, heads, list(VARIANTS.values())) as axes:
        axes.get_yticklabels()[list(VARIANTS).index("default")].set_weight("bold")
        texts = [[f"{quality:.2f}" for quality in row] for row in table]
        _fill(axes, table, _QUALITY, 1.0, texts, table == table.max(axis=0))
        axes.axvline(len(federations) - 0.5, color=_LINE, linewidth=1.0)
        axes.axhline(COMPARED - 0.5, color=_LINE, linewidth=1.0)


@contextmanager
def _heat_map(file: Path, columns: Sequence[str], rows: Sequence[str]) -> Iterator[Axes]:
    """Axes to fill, written to the file in the end."""
    with rc_context(_LOOK):
        figure = Figure(figsize=(7.4, 0.2 * len(rows) + 0.6), layout="constrained")
        axes = figure.subplots()
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, labeltop=True, labelbottom=False)
        axes.set_xticks(range(len(columns)), columns, rotation=40, ha="left", rotation_mode="anchor")
        axes.set_yticks(range(len(rows)), rows)
        yield axes
        figure.savefig(file, metadata={"Date": None})


def _fill(
    axes: Axes,
    shades: NDArray[np.float64],
    colours: Colormap,
    darkest: float,
    texts: Sequence[Sequence[str]],
    bold: NDArray[np.bool_],
) -> None:
    axes.imshow(shades, cmap=colours, vmin=0, vmax=darkest, aspect="auto", interpolation="nearest")
    for (row, column), best in np.ndenumerate(bold):
        weight = "bold" if best else "normal"
        axes.text(column, row, texts[row][column], ha="center", va="center", weight=weight)


def place_of(cell: Cell) -> str:
    return place(cell.dataset, cell.setting, cell.clients)


def place(dataset: str, setting: str, clients: int) -> str:
    """``Photo, overlapping 30`` for a federation of the paper."""
    overlap = ", overlapping" if setting == "overlapping" else ""
    return f"{short_title(dataset)}{overlap} {clients}"


def short_title(dataset: str) -> str:
    return dataset_title(dataset).removeprefix("Amazon ")


def _figures(cell: Cell, columns: Sequence[Method], at_its_best: float | None) -> list[tuple[str, float]]:
    """What stands in a row, and the distance to the best in points: NaN where there is no figure."""
    best = cell.best()
    assert best is not None
    rows = {row.algorithm: row for row in summarise(cell)}
    found = [
        (row.test_accuracy, row.worse) if row else None for row in (rows.get(method.algorithm) for method in columns)
    ]
    paper = rows[OURS].paper
    found.append(None if math.isnan(paper) else (paper, False))
    found.append(None if at_its_best is None else (at_its_best, False))
    return [_figure(each, best.mean()) for each in found]


def _figure(found: tuple[float, bool] | None, best: float) -> tuple[str, float]:
    if found is None:
        return NOTHING, math.nan
    accuracy, worse = found
    distance = 100 * (accuracy - best)
    if distance == 0:
        return f"{100 * accuracy:.1f}", distance
    return f"{distance:+.1f}".replace("-", "−") + "*" * worse, distance
