"""``fedgkd report``, ``collect`` and ``tables``: what runs have found, as a page, in one file, and in tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedgkd.cli import console
from fedgkd.cli.options import Json
from fedgkd.cli.tables import print_report, print_table, print_warnings
from fedgkd.errors import RunError

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

    if folder.is_file():
        raise RunError(f"{folder} is no folder of runs, and has no rounds to draw; its tables: fedgkd tables {folder}")
    found = read_report(folder)
    with console.working("writing the report"):
        files = write_report(found, folder / "report" if out is None else out)
    if json:
        console.print_json(_as_json(found, files))
        return
    print_report(found)
    for file in files:
        console.out.print(str(file), soft_wrap=True)


def collect(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders with runs, at any depth.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="File for the lines; those of other runs in it stay.")],
    json: Json = False,
) -> None:
    """Put finished runs into one small file, a line each, that can be kept and published; fedgkd tables reads it."""
    from dataclasses import asdict

    from fedgkd.reporting.compact import collect as into_file

    done = into_file(folders, out)
    if json:
        console.print_json(asdict(done))
    else:
        console.out.print(f"{out}: {done.lines} runs, {done.new} new, {done.changed} changed", soft_wrap=True)


class Format(StrEnum):
    MD = "md"
    CSV = "csv"
    LATEX = "latex"


def tables(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Files of fedgkd collect, or folders of runs.")
    ],
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="ALGORITHM...", help="Rank and test the others alone; after the paths."),
    ] = None,
    format_: Annotated[Format | None, typer.Option("--format", help="Print text in that format to keep.")] = None,
) -> None:
    """Show the paper's tables: every method on every federation, and how FedGKD stands."""
    from fedgkd.reporting.comparison import with_gaps
    from fedgkd.reporting.formats import to_latex, to_markdown
    from fedgkd.reporting.methods import method_title
    from fedgkd.reporting.quality import quality_tables
    from fedgkd.reporting.report import read_report
    from fedgkd.reporting.tables import distances, overviews, standing, study_table, summary_frame

    found = read_report(*paths, without=without or ())
    print_warnings(found)
    tables_ = overviews(with_gaps(found.comparison))
    if without:
        said = f"Left out: {', '.join(map(method_title, without))}."
        tables_ = [replace(table, notes=(*table.notes, said)) for table in tables_]
    shown = [*tables_, *map(study_table, found.studies), *quality_tables(found.studies)]
    cells = found.comparison.cells
    summary = [*standing(cells), *distances(cells)] if len(tables_) > 1 else []  # a single table says it itself
    if format_ is Format.CSV:
        typer.echo(summary_frame(found.comparison, found.studies).to_csv(index=False), nl=False)
    elif format_ is Format.LATEX:
        typer.echo("\n".join(["% needs \\usepackage{booktabs}", *map(to_latex, shown)]))
    elif format_ is Format.MD:
        typer.echo("\n".join([*map(to_markdown, shown), *summary]).rstrip("\n"))
    else:
        for table in shown:
            print_table(table)
        for sentence in summary:
            console.out.print(f"\n{sentence}", soft_wrap=True)


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
