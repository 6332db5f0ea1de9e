"""The tables and the picture of the pages in docs/ anew from the records in results/: run it after a ``collect``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fedgkd.reporting.comparison import Cell, with_gaps
from fedgkd.reporting.formats import to_markdown
from fedgkd.reporting.report import read_report
from fedgkd.reporting.tables import OURS, Table, distances, overviews, standing
from scripts.distances import draw_distances, place, short_title
from scripts.evidence import GRAPHS

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "figures" / "distances.svg"
BACKBONE_HEAD = "| | FedSage | FedGKD with GraphSAGE | FedGKD with a GCN |\n|---|---|---|---|\n"


def records(*graphs: str) -> tuple[Cell, ...]:
    return read_report(*(ROOT / "results" / f"{graph}.jsonl" for graph in graphs)).comparison.cells


def evidence_cells() -> list[Cell]:
    """All federations of the two tables."""
    return _by_graph(records(*GRAPHS))


def tables_page(page: str) -> str:
    """The same words before the first graph, then every graph's tables."""
    words = page.partition("\n## ")[0].rstrip("\n")
    return "\n\n".join([words, *(f"## {short_title(graph)}\n\n{_tables(graph)}" for graph in GRAPHS)]) + "\n"


def _tables(graph: str) -> str:
    found = read_report(ROOT / "results" / f"{graph}.jsonl")
    return "\n\n".join(_short(table) for table in overviews(with_gaps(found.comparison)))


def _short(table: Table) -> str:
    """Without what the page says: the heading, the graph's name and all notes but the last."""
    head, *rows = re.findall(r"^\|.*", to_markdown(table), re.MULTILINE)
    columns = re.sub(r"\| [^|]*: (\d+ clients)", r"| \1", head).split("|")
    columns[1] = f" {table.title.rpartition(', ')[2]} "
    return "\n".join(["|".join(columns), *rows, "", table.notes[-1]])


def findings_page(page: str) -> str:
    """The same with the sentences on how FedGKD stands."""
    cells = evidence_cells()
    sentences = " ".join([*standing(cells), *distances(cells)])
    return re.sub(r"^FedGKD is first .*", lambda _: sentences, page, flags=re.MULTILINE)


def evidence_page(page: str) -> str:
    """The same with GraphSAGE's table."""
    plain = {cell.key: cell for cell in evidence_cells()}
    return _with_table(
        page, BACKBONE_HEAD, [_backbone_row(cell, plain[cell.key]) for cell in _by_graph(records("graphsage"))]
    )


def _with_table(page: str, head: str, lines: Sequence[str]) -> str:
    """The same with as many other lines below that head."""
    before, head, after = page.partition(head)
    assert head, f"docs/evidence.md has no table that begins with {head!r}"
    return before + head + "".join(lines) + re.sub(r"\A(\|.*\n)*", "", after)


def _by_graph(cells: Sequence[Cell]) -> list[Cell]:
    """In the order of the graphs, not of settings."""
    return sorted(cells, key=lambda cell: GRAPHS.index(cell.dataset))


def _backbone_row(sage: Cell, plain: Cell) -> str:
    by_name = {entry.method.algorithm: entry.mean() for entry in plain.entries}
    rivals = [by_name["fedsage"], sage.entries[0].mean()]
    figures = [f"**{100 * mean:.1f}**" if mean == max(rivals) else f"{100 * mean:.1f}" for mean in rivals]
    return f"| {place(sage)} | {' | '.join(figures)} | {100 * by_name[OURS]:.1f} |\n"


PAGES = {"tables.md": tables_page, "findings.md": findings_page, "evidence.md": evidence_page}

if __name__ == "__main__":
    for name, rebuilt in PAGES.items():
        file = ROOT / "docs" / name
        file.write_text(rebuilt(file.read_text()))
    draw_distances(evidence_cells(), PICTURE)
