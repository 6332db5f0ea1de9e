"""Figures as data for plotly.js, which draws them on the page in the reader's light or dark colours.

A colour may be ``@ink``: the page puts the colour of its text there. Names are escaped, since plotly takes text for a
small dialect of HTML.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgkd.reporting.collaboration import MEANINGS, Collaboration
from fedgkd.reporting.figures import FEW, Axis, Chart, Series

Spec = dict[str, Any]

# plotly's names where they are not ours.
_MARKERS = {"cross": "x", "plus": "cross", "bar": "line-ew"}


def chart_spec(chart: Chart, *, legend: bool) -> Spec:
    """A chart as traces and layout; without a legend where the page has one for all its charts."""
    return {
        "id": chart.name,
        "title": chart.title,
        "caption": chart.caption,
        "data": [trace for series in chart.series for trace in _traces(series)],
        "layout": {
            "xaxis": _axis(chart.x) | _whole_ticks(chart),
            "yaxis": _axis(chart.y),
            "showlegend": legend,
            "hovermode": "x unified" if any(series.banded for series in chart.series) else "closest",
        },
    }


def collaboration_spec(collaboration: Collaboration) -> Spec:
    """A run's matrices as bytes, and its network; the page slides through the rounds."""
    return {
        "key": collaboration.key,
        "cell": collaboration.cell.key,
        "method": collaboration.method.title,
        "title": collaboration.title,
        "names": _escaped(collaboration.names),
        "labels": _escaped(collaboration.labels),
        "rounds": list(collaboration.rounds),
        "chosen": collaboration.chosen,
        "matrices": {
            name: {"meaning": MEANINGS[name], "values": _bytes(matrix), "edges": _edges(collaboration, name)}
            for name, matrix in collaboration.matrices.items()
        },
        "likeness": None if collaboration.likeness is None else _bytes(collaboration.likeness.astype(np.float32)),
        "likeness_meaning": MEANINGS["labels"],
        "places": _numbers(collaboration.places),
        "areas": _numbers(collaboration.areas()),
        "groups": [
            {"label": html.escape(group.label), "colour": group.colour, "members": list(group.members)}
            for group in collaboration.groups()
        ],
        "sizes": list(collaboration.sizes),
        "majority": _escaped(collaboration.majority),
        "notes": list(collaboration.notes),
    }


def _traces(series: Series) -> list[Spec]:
    style = series.style
    trace: Spec = {
        "type": "scatter",
        "name": html.escape(series.label),
        "showlegend": bool(series.label),
        "meta": series.key,
        "mode": "+".join(["lines"] * series.line + ["markers"] * series.markers),
        "x": _numbers(series.x),
        "y": _numbers(series.y),
        "opacity": 0.65 if series.faint else 1.0,
        "cliponaxis": series.line,
        "line": {"color": style.colour, "dash": style.dash, "width": 1.5 if series.faint else 3 if style.strong else 2},
        "marker": _marker(series),
        **_hover(series),
    }
    if series.banded:
        return [_band(series), trace]
    if series.spread is not None:
        trace["error_y"] = {"type": "data", "array": _numbers(series.spread), "color": style.colour, "thickness": 1}
    return [trace]


def _marker(series: Series) -> Spec:
    style = series.style
    marker: Spec = {"color": style.colour, "symbol": _MARKERS.get(style.marker, style.marker)}
    if style.marker == "bar":
        return marker | {"size": 26, "line": {"width": 3, "color": style.colour}}
    return marker | {"size": 5 if series.faint else 8, "maxdisplayed": 10 if series.line else 0}


def _hover(series: Series) -> Spec:
    if series.texts:
        return {"text": _escaped(series.texts), "hovertemplate": "%{text}: %{y:.2f}<extra></extra>"}
    if series.label and series.key:
        return {"hovertemplate": f"{html.escape(series.label)}: %{{y:.2f}}<extra></extra>"}
    return {"hoverinfo": "skip"}


def _band(series: Series) -> Spec:
    """From one end to the other along the upper edge, and back along the lower one."""
    assert series.spread is not None
    there = np.isfinite(series.y)
    x, y, spread = series.x[there], series.y[there], series.spread[there]
    return {
        "type": "scatter",
        "meta": series.key,
        "mode": "lines",
        "x": _numbers(np.concatenate([x, x[::-1]])),
        "y": _numbers(np.concatenate([y + spread, (y - spread)[::-1]])),
        "fill": "toself",
        "fillcolor": series.style.colour,
        "line": {"width": 0},
        "opacity": 0.14,
        "showlegend": False,
        "hoverinfo": "skip",
    }


def _axis(axis: Axis) -> Spec:
    title: Spec = {"title": {"text": html.escape(axis.label)}}
    if not axis.ticks:
        return title
    return title | {
        "tickvals": list(range(len(axis.ticks))),
        "ticktext": _escaped(axis.ticks),
        "tickangle": -40 if axis.crowded else 0,
        "ticklabeloverflow": "allow",
        "range": [-0.6, len(axis.ticks) - 0.4],
        "showgrid": False,
    }


def _whole_ticks(chart: Chart) -> Spec:
    """Left alone, plotly puts marks between whole numbers where there are only a few of them."""
    few = chart.x.whole and max(len(series.x) for series in chart.series) <= FEW
    return {"dtick": 1} if few else {}


def _edges(collaboration: Collaboration, name: str) -> Spec:
    """The pairs of every round as one row of numbers; their weights stand in the matrix."""
    rounds = [collaboration.edges(name, place) for place in range(len(collaboration.rounds))]
    pairs = np.array([(i, j) for edges in rounds for i, j, _ in edges], dtype="<u2").reshape(-1)
    return {"counts": list(map(len, rounds)), "pairs": base64.b64encode(pairs.tobytes()).decode()}


def _escaped(texts: Iterable[str]) -> list[str]:
    return list(map(html.escape, texts))


def _bytes(matrix: NDArray[np.float32]) -> str:
    return base64.b64encode(np.ascontiguousarray(matrix, dtype="<f4").tobytes()).decode()


def _numbers(values: NDArray[np.float64]) -> Any:
    """Six digits are more than can be seen; what is not a number is not drawn."""
    if values.ndim > 1:
        return [_numbers(row) for row in values]
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values.tolist()]
