"""The tables of docs/tables.md and docs/findings.md anew from the records in results/: run it after a ``collect``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fedgkd.reporting.comparison import Cell, with_gaps
from fedgkd.reporting.formats import to_markdown
from fedgkd.reporting.report import read_report
from fedgkd.reporting.tables import NOTHING, OURS, Table, overviews, standing

ROOT = Path(__file__).resolve().parents[1]
GRAPHS = {"cora": "Cora", "citeseer": "CiteSeer", "photo": "Photo", "pubmed": "PubMed", "computers": "Computers"}
SUMMARY_HEAD = "| | clients | FedGKD | best other | Centralised | FedGKD, as published |\n|---|---|---|---|---|---|\n"
BACKBONE_HEAD = "| | clients | FedSage | FedGKD with GraphSAGE | FedGKD with a GCN |\n|---|---|---|---|---|\n"


def records(*graphs: str) -> tuple[Cell, ...]:
    return read_report(*(ROOT / "results" / f"{graph}.jsonl" for graph in graphs)).comparison.cells


def tables_page(page: str) -> str:
    """The same words before the first graph, then every graph's tables."""
    words = page.partition("\n## ")[0].rstrip("\n")
    return "\n\n".join([words, *(f"## {name}\n\n{_tables(graph)}" for graph, name in GRAPHS.items())]) + "\n"


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
    """The same with its table of FedGKD beside the best other method, the sentence below it, and GraphSAGE's table."""
    cells = _by_graph(records(*GRAPHS))
    standings = " ".join(standing(cells))
    page = _with_table(page, SUMMARY_HEAD, [*map(_summary_row, cells), "\n", standings + "\n"])
    plain = {cell.key: cell for cell in cells}
    return _with_table(
        page, BACKBONE_HEAD, [_backbone_row(cell, plain[cell.key]) for cell in _by_graph(records("graphsage"))]
    )


def _with_table(page: str, head: str, lines: Sequence[str]) -> str:
    """The same with as many other lines below that head."""
    before, head, after = page.partition(head)
    assert head, f"docs/findings.md has no table that begins with {head!r}"
    return before + head + "".join(lines) + re.sub(r"\A(\|.*\n)*(\nFedGKD is first .*\n)?", "", after)


def _by_graph(cells: Sequence[Cell]) -> list[Cell]:
    """In the order of the graphs, not of settings."""
    order = list(GRAPHS)
    return sorted(cells, key=lambda cell: order.index(cell.dataset))


def _backbone_row(sage: Cell, plain: Cell) -> str:
    by_name = {entry.method.algorithm: entry.mean() for entry in plain.entries}
    rivals = [by_name["fedsage"], sage.entries[0].mean()]
    figures = [f"**{100 * mean:.1f}**" if mean == max(rivals) else f"{100 * mean:.1f}" for mean in rivals]
    return f"| {_place(sage)} | {' | '.join(figures)} | {100 * by_name[OURS]:.1f} |\n"


def _place(cell: Cell) -> str:
    return f"{GRAPHS[cell.dataset]}{', overlapping' if cell.setting == 'overlapping' else ''} | {cell.clients}"


def _summary_row(cell: Cell) -> str:
    ours = next(entry for entry in cell.entries if entry.method.algorithm == OURS)
    other = max((entry for entry in cell.rivals if entry is not ours), key=lambda entry: entry.mean())
    oracle = next((entry for entry in cell.entries if not entry.method.ranked), None)
    paper = cell.paper(ours)
    figures = [f"{100 * entry.mean():.1f}" for entry in (ours, other)]
    best = 0 if ours.mean() >= other.mean() else 1
    figures[best] = f"**{figures[best]}**"
    figures[1] += f" {other.method.title}"
    figures += [f"{100 * oracle.mean():.1f}" if oracle else NOTHING, f"{paper.mean:.1f}" if paper else NOTHING]
    return f"| {_place(cell)} | {' | '.join(figures)} |\n"


PAGES = {"tables.md": tables_page, "findings.md": findings_page}

if __name__ == "__main__":
    for name, rebuilt in PAGES.items():
        file = ROOT / "docs" / name
        file.write_text(rebuilt(file.read_text()))
