"""The report as one page: tables, figures and all that draws them in a single file that needs no network."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any

from fedgkd._version import __version__
from fedgkd.reporting.comparison import Method
from fedgkd.reporting.figures import cell_charts, motivation_charts
from fedgkd.reporting.formats import to_html
from fedgkd.reporting.interactive import chart_spec, collaboration_spec
from fedgkd.reporting.methods import INK
from fedgkd.reporting.report import Report
from fedgkd.reporting.tables import Table, runs_table

_DASHES = {"solid": "", "dash": "5 3", "dot": "1.5 2.5"}


def page(report: Report) -> str:
    """The whole page."""
    from plotly.offline import get_plotlyjs

    sections = list(_sections(report))
    folder = report.records.folder.resolve().name
    parts = {
        "title": html.escape(f"fedgkd report: {folder}"),
        "lead": html.escape(_lead(report)),
        "warnings": "".join(f'<p class="warning">{html.escape(warning)}</p>' for warning in report.warnings),
        "sections": "".join(f'<li><a href="#{key}">{html.escape(title)}</a></li>' for key, title, _ in sections),
        "body": "\n".join(_section(*section) for section in sections),
        "version": html.escape(__version__),
        "style": _asset("page.css"),
        "script": _asset("page.js"),
        "data": _embedded(page_data(report)),
        "plotly": get_plotlyjs(),
    }
    # One pass, so that nothing inside a part is taken for a place.
    template = _asset("page.html")
    return _PLACE.sub(lambda found: parts[found[1]], template)


def page_data(report: Report) -> dict[str, Any]:
    """What the page's script draws."""
    return {
        "cells": [
            {
                "key": cell.key,
                "methods": [entry.method.key for entry in cell.entries],
                "charts": [chart_spec(chart, legend=False) for chart in cell_charts(cell)],
            }
            for cell in report.comparison.cells
        ],
        "studies": [chart_spec(chart, legend=True) for chart in report.study_charts],
        "motivations": [
            chart_spec(chart, legend=True) for study in report.records.motivations for chart in motivation_charts(study)
        ],
        "collaborations": [collaboration_spec(collaboration) for collaboration in report.collaborations],
    }


# --- sections -------------------------------------------------------------------------------------------------------


def _sections(report: Report) -> Iterator[tuple[str, str, str]]:
    """Anchor, title and content of every section that has something to show."""
    if report.comparison.cells:
        overviews = [table for table in report.tables if not table.cell]
        details = [table for table in report.tables if table.cell]
        yield "results", "Results", _tables(overviews)
        yield "federation", "One federation", _federation(report, details)
        if report.collaborations:
            yield "collaboration", "Collaboration", _asset("collaboration.html")
    if report.studies:
        tables = [table for table in report.study_tables if table.key.startswith("table-study")]
        yield "studies", "Ablation studies", _charts("studies") + _tables(tables)
    if report.records.motivations:
        tables = [table for table in report.study_tables if table.key.startswith("table-motivation")]
        yield "motivation", "Motivation", _charts("motivations") + _tables(tables)
    if report.failed_tables:
        yield "failures", "Failed runs", _tables(report.failed_tables)
    if report.records.runs:
        summary = f"<summary>Finished runs: {len(report.records.runs)}</summary>"
        yield "runs", "All runs", f"<details>{summary}{to_html(runs_table(report.records.runs))}</details>"


def _section(key: str, title: str, content: str) -> str:
    head = f'<h2 id="{key}-heading">{html.escape(title)}</h2>'
    return f'<section id="{key}" aria-labelledby="{key}-heading">{head}{content}</section>'


def _federation(report: Report, details: Sequence[Table]) -> str:
    options = "".join(
        f'<option value="{html.escape(cell.key)}">{html.escape(cell.title)} ({html.escape(cell.scored_model)})</option>'
        for cell in report.comparison.cells
    )
    boxes = "".join(map(_method_box, report.comparison.methods))
    return (
        f'<div class="controls"><label>Federation<select id="cell">{options}</select></label></div>'
        f"{_tables(details)}"
        f'<fieldset class="methods" id="methods"><legend>Methods</legend>{boxes}</fieldset>'
        '<div class="charts" id="charts"></div>'
    )


def _method_box(method: Method) -> str:
    """A box to switch the method off and on, which is at the same time the legend of the charts."""
    style, key = method.style, html.escape(method.key)
    colour = "currentColor" if style.colour == INK else style.colour
    width, dashes = 3 if style.strong else 2, _DASHES[style.dash]
    line = f'<path d="M0 8H34" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dashes}"/>'
    mark = f'<path d="{_MARKS[style.marker]}" fill="{colour}" stroke="{colour}" stroke-width="1.5"/>'
    return (
        f'<label data-method="{key}"><input type="checkbox" checked value="{key}">'
        f'<svg viewBox="0 0 34 16" aria-hidden="true">{line}{mark}</svg>{html.escape(method.title)}</label>'
    )


_MARKS = {
    "circle": "M12 8a5 5 0 1 0 10 0a5 5 0 1 0-10 0",
    "square": "M13 4h8v8h-8z",
    "diamond": "M17 2l6 6l-6 6l-6-6z",
    "triangle-up": "M17 3l5 9h-10z",
    "triangle-down": "M17 13l5-9h-10z",
    "triangle-left": "M12 8l9-5v10z",
    "triangle-right": "M22 8l-9-5v10z",
    "pentagon": "M17 3l5 4l-2 6h-6l-2-6z",
    "hexagon": "M14 3h6l3 5l-3 5h-6l-3-5z",
    "star": "M17 2l1.6 4.2l4.4.2l-3.4 2.8l1.2 4.3l-3.8-2.4l-3.8 2.4l1.2-4.3l-3.4-2.8l4.4-.2z",
    "cross": "M13 4l8 8M21 4l-8 8",
    "plus": "M17 3v10M12 8h10",
}


def _charts(name: str) -> str:
    return f'<div class="charts" data-charts="{name}"></div>'


def _tables(tables: Sequence[Table]) -> str:
    return "".join(map(to_html, tables))


def _lead(report: Report) -> str:
    records = report.records
    counts = {"finished": len(records.runs), "failed": len(records.failed), "unfinished": len(records.unfinished)}
    versions = sorted({str(run.result["versions"].get("fedgkd")) for run in records.runs})
    runs = ", ".join(f"{number} {what}" for what, number in counts.items() if number)
    return f"Runs: {runs}." + (f" Made with fedgkd {', '.join(versions)}." if versions else "")


# --- parts ----------------------------------------------------------------------------------------------------------

_PLACE = re.compile(r"\{\{(\w+)\}\}")


def _asset(name: str) -> str:
    return (files("fedgkd.reporting") / "page" / name).read_text(encoding="utf-8")


def _embedded(data: Any) -> str:
    """JSON inside a script element, where no tag may seem to begin or end."""
    return json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
