"""Figures as files, for papers: drawn by matplotlib, with text that stays text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgkd.reporting.collaboration import Collaboration
from fedgkd.reporting.figures import Chart, Series
from fedgkd.reporting.methods import INK, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")

COLUMN_INCHES = 3.4
"""Width of a column of a two-column paper."""

_COLOUR_MAP = "cividis"
_MARKERS = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "triangle-up": "^",
    "triangle-down": "v",
    "triangle-left": "<",
    "triangle-right": ">",
    "pentagon": "p",
    "hexagon": "h",
    "star": "*",
    "cross": "x",
    "plus": "P",
    "bar": "_",
}
_DASHES: dict[str, Any] = {"solid": "-", "dash": (0, (4, 1.5)), "dot": (0, (1, 1.2))}
_LOOK: dict[Any, Any] = {
    # Names are taken as they are, even with a $ in them.
    "text.parse_math": False,
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "grid.linewidth": 0.4,
    "grid.color": "#DDDDDD",
    "axes.axisbelow": True,
    "lines.linewidth": 1.1,
    "lines.markersize": 4,
    "figure.dpi": 300,
    # Text in vector files is text: it can be searched, and takes part in the paper's own fonts if those are changed.
    "svg.fonttype": "none",
    "svg.hashsalt": "fedgkd",
    "pdf.fonttype": 42,
}


def save_chart(chart: Chart, folder: Path) -> list[Path]:
    """Write the chart as PNG, SVG and PDF."""
    from matplotlib.ticker import MaxNLocator

    with _figure(COLUMN_INCHES, 2.5) as figure:
        axes = figure.subplots()
        for series in chart.series:
            _draw(axes, series)
        axes.set_xlabel(chart.x.label)
        axes.set_ylabel(chart.y.label)
        if chart.x.ticks:
            turned: dict[str, Any] = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
            axes.set_xticks(range(len(chart.x.ticks)), chart.x.ticks, **(turned if chart.x.crowded else {}))
            axes.set_xlim(-0.6, len(chart.x.ticks) - 0.4)
            axes.grid(visible=False, axis="x")
        elif chart.x.whole:
            axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
        if chart.legend and any(series.label for series in chart.series):
            _legend(figure, axes)
        return _save(figure, folder, chart.name)


def save_heat_maps(collaboration: Collaboration, folder: Path) -> list[Path]:
    """The matrices in the round that validation chose, beside the clients' true likeness."""
    panels = {name: matrices[collaboration.chosen] for name, matrices in collaboration.matrices.items()}
    ranges = {name: collaboration.colour_range(name, collaboration.chosen) for name in panels}
    if collaboration.likeness is not None:
        panels["labels"] = collaboration.likeness.astype(np.float32)
        ranges["labels"] = (0.0, 1.0)
    with _figure(1.75 * len(panels), 2.35) as figure:
        for axes, (name, matrix) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
            low, high = ranges[name]
            image = axes.imshow(matrix, cmap=_COLOUR_MAP, vmin=low, vmax=high, interpolation="nearest")
            axes.set_title("true labels" if name == "labels" else name)
            axes.grid(visible=False)
            axes.spines[:].set_visible(False)
            _client_ticks(axes, collaboration.labels)
            bar = figure.colorbar(image, ax=axes, orientation="horizontal", shrink=0.9, aspect=14, pad=0.03)
            bar.ax.tick_params(labelsize=6, length=2)
            bar.ax.locator_params(nbins=3)
            bar.outline.set_visible(False)
        return _save(figure, folder, f"relations-{collaboration.key}")


def save_network(collaboration: Collaboration, folder: Path) -> list[Path]:
    """The collaboration network by the mixture's weights, in the round that validation chose."""
    from matplotlib.collections import LineCollection

    name = "Q" if "Q" in collaboration.matrices else next(iter(collaboration.matrices))
    edges, places = collaboration.edges(name, collaboration.chosen), collaboration.places
    strongest = max((weight for *_, weight in edges), default=1.0)
    with _figure(COLUMN_INCHES, 3.0) as figure:
        axes = figure.subplots()
        lines = [places[[i, j]] for i, j, _ in edges]
        widths = [2.4 * weight / strongest for *_, weight in edges]
        axes.add_collection(LineCollection(lines, linewidths=widths, colors="#888888", alpha=0.6, zorder=1))
        for group in collaboration.groups():
            members = list(group.members)
            look: dict[str, Any] = {"c": group.colour, "edgecolors": "white", "linewidths": 0.6, "zorder": 2}
            x, y = places[members].T
            axes.scatter(x, y, 80 * collaboration.areas()[members], label=group.label, **look)
        for (x, y), label in zip(places, collaboration.labels, strict=True):
            box = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.3}
            axes.annotate(label, (x, y), (0, 6), textcoords="offset points", ha="center", fontsize=6, bbox=box)
        axes.margins(0.12)
        axes.set_axis_off()
        if any(group.label for group in collaboration.groups()):
            figure.legend(
                title="most frequent class", loc="outside lower center", ncols=5, frameon=False, title_fontsize=7
            )
        return _save(figure, folder, f"network-{collaboration.key}")


def _draw(axes: Axes, series: Series) -> None:
    style, colour = series.style, _colour(series.style)
    every = max(1, len(series.x) // 8) if series.line else 1
    options: dict[str, Any] = {
        "color": colour,
        "linestyle": _DASHES[style.dash] if series.line else "none",
        "marker": _MARKERS[style.marker] if series.markers else "none",
        "markevery": every,
        "label": series.label or "_nolegend_",
        "alpha": 0.45 if series.faint else 1.0,
        "linewidth": 1.6 if style.strong else 1.1,
        "zorder": 3 if style.strong else 2.5,
    }
    if series.faint:
        options |= {"markersize": 2.5, "linewidth": 0.7, "zorder": 2}
    elif style.marker == "bar":
        options |= {"markersize": 14, "markeredgewidth": 1.8, "zorder": 4}
    if series.spread is not None and series.banded:
        low, high = series.y - series.spread, series.y + series.spread
        axes.fill_between(series.x, low, high, color=colour, alpha=0.13, linewidth=0, zorder=1)
        axes.plot(series.x, series.y, **options)
    elif series.spread is not None:
        axes.errorbar(series.x, series.y, yerr=series.spread, capsize=2, elinewidth=0.7, **options)
    else:
        axes.plot(series.x, series.y, **options)


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    longest = max(map(len, labels))
    columns = 1 if longest > 30 else 2 if longest > 14 else 4
    options: dict[str, Any] = {"frameon": False, "handlelength": 2.0, "columnspacing": 0.8, "borderpad": 0.1}
    figure.legend(handles, labels, loc="outside upper center", ncols=min(columns, len(labels)), **options)


def _client_ticks(axes: Axes, labels: Sequence[str]) -> None:
    """As many names as there is room for."""
    step = max(1, len(labels) // 8)
    places = list(range(0, len(labels), step))
    shown = [labels[place] for place in places]
    turned = 90 if max(map(len, shown)) > 3 else 0
    axes.set_xticks(places, shown, fontsize=6, rotation=turned)
    axes.set_yticks(places, shown, fontsize=6)
    axes.tick_params(length=0)


def _colour(style: Style) -> str:
    return "black" if style.colour == INK else style.colour


@contextmanager
def _figure(width: float, height: float) -> Iterator[Figure]:
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(_LOOK):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


def _save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """In all formats, laid out once; ``Figure.savefig`` would lay it out and draw it anew for each of them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_pdf import FigureCanvasPdf
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    canvases: dict[str, Any] = {"png": FigureCanvasAgg, "svg": FigureCanvasSVG, "pdf": FigureCanvasPdf}
    # Dates would make every file differ from the last one without a difference to be seen.
    undated: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    paths = [folder / f"{name}.{kind}" for kind in FORMATS]
    for kind, path in zip(FORMATS, paths, strict=True):
        getattr(canvases[kind](figure), f"print_{kind}")(path, metadata=undated[kind])
    return paths
