"""The tables and two pictures of the pages in docs/ anew from the records in results/: run it after a ``collect``."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from fedgkd.experiments.ablate import RELATION_VARIANTS
from fedgkd.reporting.comparison import Cell, Entry, with_gaps
from fedgkd.reporting.formats import to_markdown
from fedgkd.reporting.quality import Row, quality_rows
from fedgkd.reporting.report import read_report
from fedgkd.reporting.tables import NOTHING, OURS, Table, distances, overviews, standing
from scripts import convergence
from scripts.evidence import GRAPHS
from scripts.pictures import draw_distances, draw_relation, place, place_of, short_title

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "figures"
DISTANCES, RELATION = FIGURES / "distances.svg", FIGURES / "relation.svg"
RELATION_TABLES = {
    "| federation | our default | paper to the letter | X‖H, our X0, averaged | FED-PUB | bytes: in that order |\n"
    "|---|---|---|---|---|---|\n": ("default", "paper", "x-h", "FED-PUB"),
    "| federation | our default | its cosine alone | FED-PUB's embedding | weights | updates | bytes: in that order |\n"
    "|---|---|---|---|---|---|---|\n": ("default", "cosine", "embedding", "weights", "updates"),
}
"""Their heads, and the variants below."""
MEASURES_HEAD = "| | cosine | correlation | both |\n|---|---|---|---|\n"
MEASURES = {
    "class distributions": ("cosine", "correlation", "default"),
    "[X ‖ H]": ("x-h-cosine", "x-h", "x-h-both"),
    "H": ("h-cosine", "h", None),
}
"""The variants that compare a feature by each."""
AGREEMENT_HEAD = (
    "| | Cora 20 | CiteSeer 20 | CiteSeer, overlapping 30 | Photo 20 | PubMed 20 | Computers 20 |\n"
    "|---|---|---|---|---|---|---|\n"
)
OTHER_KERNELS = ("local-kernel", "square-kernel", "centred-kernel")
BACKBONE_HEAD = (
    "| | FedSage | FedSage+ | FedProx with GraphSAGE | FedGKD with GraphSAGE | FedGKD with a GCN |\n"
    "|---|---|---|---|---|---|\n"
)
BEST_HEADING = "## The best models\n"
BEST_HEAD = (
    "| | `--preset best` | best other, likewise | GraphSAGE, trained models | in the tables | best other there |\n"
    "|---|---|---|---|---|---|\n"
)

WEAK_HEADING = "## A weaker proximal term\n"
WEAK_HEAD = "| | in the tables | λ = 10⁻⁴ | the same, centred kernel | best other with a GCN |\n|---|---|---|---|---|\n"
WEAK_BY_GCN = "Among the methods with a GCN, "
WHOLE_BY_GCN = "Among the methods with a GCN alone:\n"
BY_GRAPHSAGE = ("fedsage", "fedsage_plus")
CONVERGENCE_HEAD = f"| | {' | '.join(map(short_title, GRAPHS))} |\n|---|---|---|---|---|---|\n"
WHOLE_HEADING = "## What the early stop costs\n"
WHOLE_HEAD = "| | | as in the tables | to the last round |\n|---|---|---|---|\n"


@cache
def records(*files: str) -> dict[str, Cell]:
    """The cells of some files of ``results/`` by federation, graph by graph."""
    cells = read_report(*(ROOT / "results" / f"{file}.jsonl" for file in files)).comparison.cells
    return {place_of(cell): cell for cell in sorted(cells, key=lambda cell: GRAPHS.index(cell.dataset))}


def evidence() -> dict[str, Cell]:
    """All federations of the two tables."""
    return records(*GRAPHS)


def evidence_with(file: str, *methods: str, without: Sequence[str] = ()) -> list[Cell]:
    """All federations of the two tables, with another file's runs in the place of the same methods' own.

    Args:
        methods: Those alone; all that the file has by default.
        without: Methods to leave out.
    """
    other = records(file)
    return [_replaced(cell, other.get(where), methods, without) for where, cell in evidence().items()]


def _replaced(cell: Cell, other: Cell | None, methods: Sequence[str], without: Sequence[str]) -> Cell:
    entries = other.entries if other else ()
    new = [entry for entry in entries if not methods or entry.method.algorithm in methods]
    gone = {*without, *(entry.method.algorithm for entry in new)}
    return replace(cell, entries=(*(entry for entry in cell.entries if entry.method.algorithm not in gone), *new))


def at_its_best() -> dict[str, float]:
    """FedGKD's accuracy with ``--preset best``, by federation."""
    return {where: _means(cell)[OURS] / 100 for where, cell in records("best").items()}


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
    """The same with the sentences on how FedGKD stands, as it is by default and at its best."""
    page = _with_standing(page, "## Where it does not\n", list(evidence().values()))
    return _with_standing(page, BEST_HEADING, evidence_with("best", OURS))


def _with_standing(page: str, words: str, cells: Sequence[Cell]) -> str:
    """The same with how FedGKD stands there, in the place of the line that says so next after those words."""
    before, words, after = page.partition(words)
    section, heading, rest = after.partition("\n## ")
    sentences = " ".join([*standing(cells), *distances(cells)])
    section, put = re.subn(r"^FedGKD is first .*", lambda _: sentences, section, count=1, flags=re.MULTILINE)
    assert put, f"no page says how FedGKD stands after {words!r}"
    return before + words + section + heading + rest


@cache
def relation_rows() -> dict[str, dict[str, Row]]:
    """The figures of the relation study, by variant and federation."""
    found: dict[str, dict[str, Row]] = {}
    rows = quality_rows(read_report(ROOT / "results" / "relation.jsonl").studies)
    for row in sorted(rows, key=lambda row: (GRAPHS.index(row["dataset"]), row["clients"])):
        found.setdefault(row["variant"], {})[place(row["dataset"], row["setting"], row["clients"])] = row
    return found


def relation_qualities() -> dict[str, dict[str, float]]:
    rows = relation_rows()
    return {variant: {where: row["quality"] for where, row in found.items()} for variant, found in rows.items()}


def evidence_page(page: str) -> str:
    """The same with all its tables, and with how FedGKD stands where other runs are in the place of the tables' own."""
    for head, variants in RELATION_TABLES.items():
        page = _with_table(page, head, _relation_lines(variants))
    page = _with_table(page, MEASURES_HEAD, _measures_lines())
    page = _with_table(page, AGREEMENT_HEAD, [_agreement_line()])
    plain, sage, best = evidence(), records("graphsage"), records("best")
    page = _with_table(page, BACKBONE_HEAD, [_backbone_row(sage[where], plain[where]) for where in sage])
    page = _with_table(page, BEST_HEAD, [_best_row(best[where], sage.get(where), plain[where]) for where in best])
    page = _with_standing(page, BEST_HEADING, evidence_with("best", OURS))
    contested = [cell for cell in best.values() if len(cell.rivals) > 1]
    page = _with_standing(page, "Among those that were given the same, ", contested)
    weak, centred = records("lambda"), records("centred")
    page = _with_table(page, WEAK_HEAD, [_weak_row(plain[where], weak[where], centred.get(where)) for where in weak])
    page = _with_standing(page, WEAK_HEADING, evidence_with("lambda"))
    page = _with_standing(page, WEAK_BY_GCN, evidence_with("lambda", without=BY_GRAPHSAGE))
    rows = [row for where, whole in records("no-early-stop").items() for row in _whole_rows(plain[where], whole)]
    page = _with_standing(_with_table(page, WHOLE_HEAD, rows), WHOLE_HEADING, evidence_with("no-early-stop"))
    return _with_standing(page, WHOLE_BY_GCN, evidence_with("no-early-stop", without=BY_GRAPHSAGE))


def _relation_lines(variants: Sequence[str]) -> list[str]:
    rows = relation_rows()
    columns = [rows[variant] for variant in variants]
    means = list(map(_mean_quality, variants))
    lines = (_relation_line(where, [column[where] for column in columns]) for where in columns[0])
    return [*lines, f"| mean | {_with_best_bold(means, '.3f')} | |\n"]


def _measures_lines() -> list[str]:
    figures = {feature: [_mean_quality(variant) for variant in by] for feature, by in MEASURES.items()}
    return [f"| {feature} | {_with_best_bold(row, '.3f')} |\n" for feature, row in figures.items()]


def _agreement_line() -> str:
    """Whether the variants with the paper's kernel that relate the clients better are the more accurate ones."""
    alike = [of for variant, of in relation_rows().items() if variant in RELATION_VARIANTS.keys() - {*OTHER_KERNELS}]
    found = [
        spearmanr([of[where]["quality"] for of in alike], [of[where]["val_accuracy"] for of in alike]).statistic
        for where in alike[0]
    ]
    return f"| rank correlation | {' | '.join(f'{value:.2f}'.replace('-', '−') for value in found)} |\n"


def _mean_quality(variant: str | None) -> float:
    """Over all federations; none where nothing has been run."""
    return float(np.mean([row["quality"] for row in relation_rows()[variant].values()])) if variant else math.nan


def _relation_line(where: str, found: Sequence[Row]) -> str:
    sizes = ", ".join(f"{row['feature_bytes']:,.0f}" for row in found)
    return f"| {where} | {_with_best_bold([row['quality'] for row in found], '.3f')} | {sizes} |\n"


def _with_best_bold(figures: Sequence[float], form: str) -> str:
    """So many cells of a table; one that is not known stays empty."""
    return " | ".join(_best_bold(figures, form))


def _best_bold(figures: Sequence[float], form: str) -> list[str]:
    best = np.nanmax(figures)
    texts = (NOTHING if math.isnan(figure) else f"{figure:{form}}" for figure in figures)
    return [f"**{text}**" if figure == best else text for figure, text in zip(figures, texts, strict=True)]


def _with_table(page: str, head: str, lines: Sequence[str]) -> str:
    """The same with as many other lines below that head."""
    before, head, after = page.partition(head)
    assert head, f"the page has no table that begins with {head!r}"
    return before + head + "".join(lines) + re.sub(r"\A(\|.*\n)*", "", after)


def _means(cell: Cell) -> dict[str, float]:
    """The test accuracies of a cell's methods, in percent."""
    return {entry.method.algorithm: 100 * entry.mean() for entry in cell.entries}


def _best_row(best: Cell, sage: Cell | None, plain: Cell) -> str:
    """Ours in three ways, and the best of the others in the ways of the first and of the last."""
    (likewise, likewise_by), (there, there_by) = _best_other(best), _best_other(plain)
    trained = _means(sage)[OURS] if sage else math.nan
    figures = [_means(best)[OURS], likewise, trained, _means(plain)[OURS], there]
    names = ["", likewise_by, "", "", there_by]
    texts = [f"{text} {name}".rstrip() for text, name in zip(_best_bold(figures, ".1f"), names, strict=True)]
    return f"| {place_of(best)} | {' | '.join(texts)} |\n"


def _best_other(cell: Cell, without: Sequence[str] = ()) -> tuple[float, str]:
    """Its accuracy and its name; none where there is no other."""
    others = [entry for entry in cell.rivals if entry.method.algorithm not in (OURS, *without)]
    best = max(others, key=Entry.mean, default=None)
    return (100 * best.mean(), best.method.title) if best else (math.nan, "")


def _weak_row(plain: Cell, weak: Cell, centred: Cell | None) -> str:
    """FedGKD with a proximal term that is weaker than in the tables."""
    rival, name = _best_other(plain, without=BY_GRAPHSAGE)
    figures = [_means(plain)[OURS], _means(weak)[OURS], _means(centred)[OURS] if centred else math.nan, rival]
    return f"| {place_of(plain)} | {_with_best_bold(figures, '.1f')} {name} |\n"


def _whole_rows(plain: Cell, whole: Cell) -> list[str]:
    stopped = {entry.method.algorithm: _seeds(entry) for entry in plain.entries}
    return [
        f"| {place_of(plain)} | {entry.method.title} | {stopped[entry.method.algorithm]} | {_seeds(entry)} |\n"
        for entry in whole.entries
    ]


def _seeds(entry: Entry) -> str:
    """The accuracy of every seed and the round that it is of."""
    figures = zip(entry.values("test_accuracy"), entry.values("best_round"), strict=True)
    return ", ".join(f"{100 * accuracy:.1f} ({best:.0f})" for accuracy, best in figures)


def _backbone_row(sage: Cell, plain: Cell) -> str:
    by_name, with_sage = _means(plain), _means(sage)
    rivals = [by_name["fedsage"], by_name["fedsage_plus"], with_sage.get("fedprox", math.nan), with_sage[OURS]]
    return f"| {place_of(sage)} | {_with_best_bold(rivals, '.1f')} | {by_name[OURS]:.1f} |\n"


def studies_page(page: str) -> str:
    """The same with the table of convergence."""
    return _with_table(page, CONVERGENCE_HEAD, convergence.lines(ROOT / convergence.RECORD))


PAGES = {
    "tables.md": tables_page,
    "findings.md": findings_page,
    "evidence.md": evidence_page,
    "studies.md": studies_page,
}

if __name__ == "__main__":
    for name, rebuilt in PAGES.items():
        file = ROOT / "docs" / name
        file.write_text(rebuilt(file.read_text()))
    draw_distances(list(evidence().values()), at_its_best(), DISTANCES)
    draw_relation(relation_qualities(), RELATION)
