"""``fedgkd report``: tables, figures and a page from the records of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedgkd.cli import console
from fedgkd.cli.options import Json

if TYPE_CHECKING:
    from fedgkd.reporting.report import Report
    from fedgkd.reporting.tables import Table

_MOST_FEDERATIONS = 4


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder with runs, at any depth, as compare and ablate write them.")
    ],
    out: Annotated[Path | None, typer.Option(help="Folder for the report; by default DIR/report.")] = None,
    json: Json = False,
) -> None:
    """Show what runs have found: tables, figures, and one page that opens in any browser."""
    from fedgkd.reporting.report import read_report
    from fedgkd.reporting.writing import write_report

    found = read_report(folder)
    with console.working("writing the report"):
        files = write_report(found, folder / "report" if out is None else out)
    if json:
        console.print_json(_as_json(found, files))
        return
    for warning in found.warnings:
        console.err.print(f"warning: {warning}", soft_wrap=True)
    print_tables(found)
    for file in files:
        console.out.print(str(file), soft_wrap=True)


def print_tables(found: Report) -> None:
    """The tables of a report on the screen; those of single federations only while there are few."""
    tables = found.all_tables
    if len(found.comparison.cells) > _MOST_FEDERATIONS:
        tables = [table for table in tables if not table.cell]
    for table in tables:
        _print_table(table)


def _print_table(table: Table) -> None:
    from fedgkd.reporting.formats import marked, plain_heads

    heads = plain_heads(table)
    starred = [any(row[place].worse for row in table.rows) for place in range(len(heads))]
    # Figures without a star make room for it, so that they stay in line.
    texts = [
        [marked(value) + "  " * (star and not value.worse) for value, star in zip(row, starred, strict=True)]
        for row in table.rows
    ]
    widths = [max(len(text) for text in (*head.split(), *(row[k] for row in texts))) for k, head in enumerate(heads)]
    for places in _pages(widths, console.out.width):
        printed = console.new_table(table.title)
        for place in places:
            numeric = table.columns[place].numeric
            printed.add_column(heads[place], justify="right" if numeric else "left", style=None if place else "bold")
        for row, row_texts in zip(table.rows, texts, strict=True):
            printed.add_row(*(_rich_value(row[place].best, row_texts[place]) for place in places))
        console.out.print(printed)
    for note in table.notes:
        console.out.print(note, style="dim", soft_wrap=True)


def _pages(widths: Sequence[int], room: int) -> list[list[int]]:
    """Columns side by side as far as there is room, the first one on every page."""
    pages: list[list[int]] = []
    left = 0
    for place, width in enumerate(widths[1:], 1):
        if not pages or left < width + 1:
            pages.append([0])
            left = room - widths[0] - 1
        pages[-1].append(place)
        left -= width + 1
    return pages


def _rich_value(best: bool, text: str) -> Any:
    from rich.text import Text

    return Text(text, style="bold" if best else "")


def _as_json(found: Report, files: Sequence[Path]) -> dict[str, Any]:
    from dataclasses import asdict

    from fedgkd.reporting.tables import summarise

    return {
        "results": [asdict(row) for cell in found.comparison.cells for row in summarise(cell)],
        "studies": [
            {
                "study": study.name,
                "setting": study.setting,
                "value": value,
                "dataset": line.cell.dataset,
                "partition": line.cell.setting,
                "clients": line.cell.clients,
                "seeds": len(entry.runs),
                "test_accuracy": entry.mean(),
                "test_accuracy_std": entry.std(),
            }
            for study in found.studies
            for line in study.lines
            for value, entry in line.entries.items()
        ],
        "failed": [asdict(run) for run in found.records.failed],
        "unfinished": list(found.records.unfinished),
        "warnings": found.warnings,
        "files": [str(file) for file in files],
    }
