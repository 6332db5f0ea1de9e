"""``fedgkd report``: tables, figures and a page from the records of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedgkd.cli import console
from fedgkd.cli.options import Json
from fedgkd.cli.tables import print_report

if TYPE_CHECKING:
    from fedgkd.reporting.report import Report


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
    print_report(found)
    for file in files:
        console.out.print(str(file), soft_wrap=True)


def _as_json(found: Report, files: Sequence[Path]) -> dict[str, Any]:
    from dataclasses import asdict

    from fedgkd.reporting.tables import study_rows, summarise

    return {
        "results": [asdict(row) for cell in found.comparison.cells for row in summarise(cell)],
        "studies": [row for study in found.studies for row in study_rows(study)],
        "failed": [asdict(run) for run in found.records.failed],
        "unfinished": list(found.records.unfinished),
        "warnings": found.warnings,
        "files": [str(file) for file in files],
    }
