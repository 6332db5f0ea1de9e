"""``fedgkd report``: tables, figures and a page from the records of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedgkd.cli import console
from fedgkd.cli.options import Json
from fedgkd.cli.tables import print_table

if TYPE_CHECKING:
    from fedgkd.reporting.report import Report

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
        print_table(table)


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
