"""What the figures show, whatever draws them (see :mod:`fedgkd.reporting.static` and ``interactive``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedgkd.reporting.comparison import Cell, Entry, slug
from fedgkd.reporting.methods import Style, numbered_style, scored_models
from fedgkd.reporting.motivation import Motivation
from fedgkd.reporting.studies import StudyResult

Array = NDArray[np.float64]

FEW = 12
"""A line with more points than that is a long one."""

MOST_POINTS = 3000
"""Of a cloud; more would be a blot."""


@dataclass(frozen=True)
class Series:
    """Points that belong together.

    Attributes:
        label: For the legend; an empty one is not listed there.
        key: What it is about, so that a reader can switch it off everywhere.
        style: Colour, marker and dash.
        x, y: The points.
        spread: Standard deviation of y: a band around a line, or bars at points.
        texts: What each point says of itself when it is pointed at.
        line: Whether the points are joined.
        markers: Whether the points are marked; a long line marks only some.
        faint: Drawn lightly, behind the others.
    """

    label: str
    key: str
    style: Style
    x: Array
    y: Array
    spread: Array | None = None
    texts: tuple[str, ...] = ()
    line: bool = True
    markers: bool = True
    faint: bool = False

    @property
    def banded(self) -> bool:
        """Long lines show their spread as a band, short ones and points as bars."""
        return self.spread is not None and self.line and len(self.x) > FEW


@dataclass(frozen=True)
class Axis:
    """A label, and names at places where the axis does not count; ``whole`` if nothing lies between whole numbers."""

    label: str
    ticks: tuple[str, ...] = ()
    whole: bool = False

    @property
    def crowded(self) -> bool:
        """Whether the names have to be turned to stand beside each other."""
        return sum(map(len, self.ticks)) > 45


@dataclass(frozen=True)
class Chart:
    """A figure of series over two axes. ``kind`` groups charts that show the same of different cells."""

    kind: str
    key: str
    title: str
    caption: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    legend: bool = True

    @property
    def name(self) -> str:
        """For its files."""
        return f"{self.kind}-{self.key}" if self.key else self.kind


def cell_charts(cell: Cell) -> list[Chart]:
    """All charts of a cell that have something to show."""
    makers = (convergence, client_accuracies, accuracy_against_bytes, accuracy_against_time, relation_quality)
    return [chart for chart in (make(cell) for make in makers) if chart.series]


# --- over rounds ----------------------------------------------------------------------------------------------------


def convergence(cell: Cell) -> Chart:
    series = [_over_rounds(entry, "test_accuracy", 100) for entry in cell.entries]
    return Chart(
        "convergence",
        cell.key,
        "Convergence",
        f"Test accuracy of the {_models(cell)} over rounds, mean over clients. {_band_note(cell)}",
        Axis("round", whole=True),
        Axis("test accuracy (%)"),
        tuple(series),
    )


def relation_quality(cell: Cell) -> Chart:
    shown = [
        entry for entry in cell.entries if all(np.isfinite(run.rounds["relation_quality"]).any() for run in entry.runs)
    ]
    return Chart(
        "relation-quality",
        cell.key,
        "Relation quality",
        "Spearman correlation over client pairs between the relation that the server found and the likeness of the "
        f"clients' true label distributions: 1 is perfect, 0 is chance. {_band_note(cell)}",
        Axis("round", whole=True),
        Axis("Spearman correlation"),
        tuple(_over_rounds(entry, "relation_quality", 1) for entry in shown),
    )


def _over_rounds(entry: Entry, column: str, scale: float) -> Series:
    values = scale * _stacked([run.rounds[column] for run in entry.runs])
    return Series(
        entry.method.title,
        entry.method.key,
        entry.method.style,
        x=np.arange(1, values.shape[1] + 1, dtype=np.float64),
        y=values.mean(axis=0),
        spread=_std(values),
    )


def _stacked(rows: Sequence[Array]) -> Array:
    """A row per seed, as long as the shortest of them: no round is averaged over fewer seeds than the others."""
    shortest = min(map(len, rows))
    return np.stack([row[:shortest] for row in rows])


# --- against cost ---------------------------------------------------------------------------------------------------


def accuracy_against_bytes(cell: Cell) -> Chart:
    """Of federated methods: nobody has counted what it takes to bring all graphs to one place."""
    return _against_cost(
        cell,
        cell.rivals,
        "bytes",
        "Accuracy against traffic",
        "traffic of all clients, up and down (MB)",
        ("bytes_up", "bytes_down"),
        1e6,
    )


def accuracy_against_time(cell: Cell) -> Chart:
    return _against_cost(cell, cell.entries, "time", "Accuracy against time", "wall time (s)", ("seconds",), 1)


def _against_cost(
    cell: Cell, entries: Sequence[Entry], kind: str, title: str, label: str, columns: Sequence[str], unit: float
) -> Chart:
    paths, chosen = [], []
    for entry in entries:
        method = entry.method
        costs = [np.cumsum(sum(run.rounds[column] for column in columns)) / unit for run in entry.runs]
        spent = [cost[run.result["best_round"] - 1] for cost, run in zip(costs, entry.runs, strict=True)]
        path = _stacked([run.rounds["test_accuracy"] for run in entry.runs]).mean(axis=0)
        spent_so_far = _stacked(costs).mean(axis=0)
        paths.append(Series("", method.key, method.style, spent_so_far, 100 * path, markers=False, faint=True))
        spread = np.array([100 * entry.std()]) if len(entry.runs) > 1 else None
        point = (np.array([np.mean(spent)]), np.array([100 * entry.mean()]))
        chosen.append(Series(method.title, method.key, method.style, *point, spread=spread, line=False))
    return Chart(
        f"accuracy-{kind}",
        cell.key,
        title,
        f"Test accuracy of the {_models(cell)} against what was spent so far, means over seeds. The mark is the round "
        "that validation chose" + (", with the standard deviation over seeds." if _several(cell) else "."),
        Axis(label),
        Axis("test accuracy (%)"),
        tuple(paths + chosen),
    )


# --- clients --------------------------------------------------------------------------------------------------------


def client_accuracies(cell: Cell) -> Chart:
    series: list[Series] = []
    for place, entry in enumerate(cell.entries):
        points = [
            (100 * accuracy, f"{name}, seed {run.result['seed']}")
            for run in entry.runs
            for name, accuracy in zip(run.result["client_names"], run.result["per_client"], strict=True)
            if accuracy is not None
        ]
        y = np.array([accuracy for accuracy, _ in points], dtype=np.float64)
        method = entry.method
        texts = tuple(text for _, text in points)
        series.append(
            Series("", method.key, method.style, place + _jitter(len(y)), y, texts=texts, line=False, faint=True)
        )
        mean = Style(method.style.colour, "bar", strong=True)
        series.append(
            Series(method.title, method.key, mean, np.array([float(place)]), np.array([100 * entry.mean()]), line=False)
        )
    return Chart(
        "clients",
        cell.key,
        "Accuracy of every client",
        f"Test accuracy of the {_models(cell)}: a point for each client and seed, a bar for the mean.",
        Axis("", tuple(entry.method.title for entry in cell.entries)),
        Axis("test accuracy (%)"),
        tuple(series),
        legend=False,
    )


def _jitter(number: int) -> Array:
    """Places that keep points apart; even, so that a figure is the same every time."""
    golden = 0.618033988749895
    return np.asarray(0.6 * (np.arange(number) * golden % 1 - 0.5), dtype=np.float64)


# --- studies --------------------------------------------------------------------------------------------------------


def study_chart(study: StudyResult) -> Chart:
    series = []
    several = any(len(entry.runs) > 1 for line in study.lines for entry in line.entries.values())
    for number, line in enumerate(study.lines):
        places = [place for place, value in enumerate(study.values) if value in line.entries]
        entries = [line.entries[study.values[place]] for place in places]
        series.append(
            Series(
                line.cell.title,
                line.cell.key,
                numbered_style(number),
                np.array(places, dtype=np.float64),
                np.array([100 * entry.mean() for entry in entries]),
                np.nan_to_num([100 * entry.std() for entry in entries]) if several else None,
                line=study.numeric,
            )
        )
    deviation = ", with its standard deviation over seeds" if several else ""
    spaced = " The values are evenly spaced." if study.numeric else ""
    return Chart(
        "study",
        study.key,
        study.title,
        f"Mean test accuracy{deviation}.{spaced}",
        Axis(study.setting, tuple(map(str, study.values))),
        Axis("test accuracy (%)"),
        tuple(series),
    )


def motivation_charts(study: Motivation) -> list[Chart]:
    """Embeddings under the original and under the flipped labels, coloured by the original ones."""
    shown = np.unique(np.linspace(0, len(study.labels) - 1, min(MOST_POINTS, len(study.labels))).astype(int))
    left_out = f" {len(shown)} of {len(study.labels)} nodes are drawn." if len(shown) < len(study.labels) else ""
    titles = {"original": "Embeddings, original labels", "flipped": "Embeddings, labels flipped"}
    return [
        Chart(
            "motivation",
            slug(f"{study.name} {task}"),
            titles[task],
            "Two principal components of the nodes' embeddings by the GCN trained on these labels; colours are the "
            f"original classes in both pictures.{left_out}",
            Axis("first component"),
            Axis("second component"),
            tuple(_cloud(points[shown], study.labels[shown])),
        )
        for task, points in study.pictures.items()
    ]


def _cloud(points: Array, labels: NDArray[np.int64]) -> Iterator[Series]:
    for number, label in enumerate(np.unique(labels).tolist()):
        x, y = points[labels == label].T
        yield Series(f"class {label}", "", numbered_style(number), x, y, line=False, faint=True)


# --- words ----------------------------------------------------------------------------------------------------------


def _models(cell: Cell) -> str:
    return scored_models(cell.scored_model)


def _several(cell: Cell) -> bool:
    return any(len(entry.runs) > 1 for entry in cell.entries)


def _band_note(cell: Cell) -> str:
    if not _several(cell):
        return "One seed."
    return "Mean and standard deviation over seeds, as far as all seeds of a method go."


def _std(values: Array) -> Array | None:
    return values.std(axis=0, ddof=1) if len(values) > 1 else None
