"""The files of a report: a page, tables and figures, all of them or none."""

from __future__ import annotations

from pathlib import Path

from fedgkd.atomic import atomic_folder, atomic_write_text
from fedgkd.errors import RunError
from fedgkd.reporting.formats import to_latex, to_markdown
from fedgkd.reporting.html import page
from fedgkd.reporting.report import Report
from fedgkd.reporting.static import save_chart, save_heat_maps, save_network
from fedgkd.reporting.tables import summary_frame

PAGE, FIGURES = "report.html", "figures"
FILES = (PAGE, "tables.md", "tables.tex", "tables.csv", FIGURES)


def write_report(report: Report, out: Path) -> list[Path]:
    """Write the report into ``out``; an earlier one there is replaced.

    Returns:
        The files; of the figures, only their folder.

    Raises:
        RunError: If ``out`` holds anything but a report, or cannot be written.
    """
    _check_replaceable(out)
    whole = page(report)
    with atomic_folder(out, RunError) as folder:
        (folder / PAGE).write_text(whole, encoding="utf-8")
        write_tables(report, folder)
        (folder / FIGURES).mkdir()
        _save_figures(report, folder / FIGURES)
    return [out / name for name in FILES]


def write_tables(report: Report, folder: Path) -> list[Path]:
    """The tables alone, as Markdown, LaTeX and CSV; earlier ones there are replaced."""
    tables = report.all_tables
    texts = {
        "tables.md": "\n".join(map(to_markdown, tables)),
        "tables.tex": "\n".join(["% needs \\usepackage{booktabs}", *map(to_latex, tables)]),
        "tables.csv": summary_frame(report.comparison, report.studies).to_csv(index=False),
    }
    for name, text in texts.items():
        atomic_write_text(folder / name, text, RunError)
    return [folder / name for name in texts]


def _save_figures(report: Report, folder: Path) -> None:
    for chart in report.charts():
        save_chart(chart, folder)
    for collaboration in report.collaborations:
        save_heat_maps(collaboration, folder)
        save_network(collaboration, folder)


def _check_replaceable(out: Path) -> None:
    """A report takes the place of a report, never of anything else."""
    if out.is_dir():
        strangers = sorted(entry.name for entry in out.iterdir() if entry.name not in FILES)
        if strangers:
            raise RunError(f"{out} holds other files than a report ({strangers[0]}); choose another --out")
    elif out.exists():
        raise RunError(f"{out} is a file; choose another --out")
