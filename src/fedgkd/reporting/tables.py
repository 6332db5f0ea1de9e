"""Tables of a comparison: what stands in them, whatever they are written in (see :mod:`fedgkd.reporting.formats`)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from fedgkd.reporting.comparison import Cell, Comparison, Entry, group, slug
from fedgkd.reporting.methods import clients_title, dataset_title, method_title, scored_models
from fedgkd.reporting.motivation import PAIRS, Motivation
from fedgkd.reporting.records import FailedRun, FinishedRun
from fedgkd.reporting.significance import LEVEL, PairedTest, against_best
from fedgkd.reporting.studies import StudyResult

if TYPE_CHECKING:
    import pandas as pd

NOTHING = "–"
OURS = "fedgkd"


@dataclass(frozen=True)
class Summary:
    """A method in a cell, in numbers; accuracies and their differences are shares of one, not percent.

    Attributes:
        seeds: Number of runs that the means are over.
        test_accuracy, test_accuracy_std: The headline: mean and sample standard deviation over seeds.
        rank: 1 for the best mean of the cell; None for a method that sees the graphs of all clients.
        against, p_value, pairs: The best method, and the test of the difference from it over pairs (seed, client).
        paper, paper_std, difference: The paper's figure, and ours minus it.
        mb_up, mb_down: Megabytes per client and round.
        mb_total: Megabytes both ways, of all clients in all rounds.
        seconds: Wall time of a run.
    """

    dataset: str
    setting: str
    clients: int
    scored_model: str
    data: str
    algorithm: str
    variant: str
    seeds: int
    test_accuracy: float
    test_accuracy_std: float
    rank: int | None
    against: str
    p_value: float
    pairs: int
    paper: float
    paper_std: float
    difference: float
    test_accuracy_weighted: float
    test_accuracy_received: float
    test_accuracy_last: float
    test_macro_f1: float
    rounds: float
    best_round: float
    mb_up: float
    mb_down: float
    mb_total: float
    seconds: float

    @property
    def worse(self) -> bool:
        """Whether the best method of the cell is better by more than chance."""
        return self.p_value < LEVEL


@dataclass(frozen=True)
class Column:
    """``group`` stands above the heads of neighbours that share it."""

    head: str
    group: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class Value:
    """What stands in one place of a table; ``best`` is set in bold, ``worse`` marked with a star."""

    text: str
    best: bool = False
    worse: bool = False


@dataclass(frozen=True)
class Table:
    """The first column of every row is its head. ``key`` is an anchor, ``cell`` the cell it belongs to."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    notes: tuple[str, ...] = ()
    cell: str = ""


def summarise(cell: Cell) -> list[Summary]:
    """The methods of a cell in numbers, in the cell's order."""
    tests = against_best(cell)
    return [_summary(cell, entry, tests.get(entry.method.key)) for entry in cell.entries]


def study_rows(study: StudyResult) -> Iterator[dict[str, Any]]:
    """The entries of a study in numbers: which value of which setting, and the fields of :class:`Summary`.

    There are no ranks and no figures of the paper, which chose its settings.
    """
    nothing = {"rank": None, "paper": math.nan, "paper_std": math.nan, "difference": math.nan}
    for line in study.lines:
        for value, entry in line.entries.items():
            figures = asdict(_summary(line.cell, entry, None)) | nothing
            yield {"study": study.name, "varied": study.setting, "value": value} | figures


def summary_frame(comparison: Comparison, studies: Sequence[StudyResult] = ()) -> pd.DataFrame:
    """All methods in all cells and all entries of studies, one row each."""
    import pandas as pd

    rows = [asdict(row) for cell in comparison.cells for row in summarise(cell)]
    rows += [row for study in studies for row in study_rows(study)]
    columns = [field.name for field in fields(Summary)]
    return pd.DataFrame(rows, columns=["study", "varied", "value", *columns] if studies else columns)


def _summary(cell: Cell, entry: Entry, test: PairedTest | None) -> Summary:
    printed = cell.paper(entry)
    visits = entry.values("rounds") * cell.clients
    # What it would take to bring all graphs to one place is not known, and surely not nothing.
    unit = 1e6 if entry.method.ranked else math.nan
    up, down = entry.values("bytes_up") / unit, entry.values("bytes_down") / unit
    return Summary(
        dataset=cell.dataset,
        setting=cell.setting,
        clients=cell.clients,
        scored_model=cell.scored_model,
        data=cell.data,
        algorithm=entry.method.algorithm,
        variant=entry.method.variant,
        seeds=len(entry.runs),
        test_accuracy=entry.mean(),
        test_accuracy_std=entry.std(),
        rank=cell.rank(entry),
        against=test.against.method.title if test else "",
        p_value=test.p if test else math.nan,
        pairs=test.pairs if test else 0,
        paper=printed.mean / 100 if printed else math.nan,
        paper_std=printed.std / 100 if printed else math.nan,
        difference=entry.mean() - printed.mean / 100 if printed else math.nan,
        test_accuracy_weighted=entry.mean("test_accuracy_weighted"),
        test_accuracy_received=entry.mean("test_accuracy_received"),
        test_accuracy_last=entry.mean("test_accuracy_last"),
        test_macro_f1=entry.mean("test_macro_f1"),
        rounds=entry.mean("rounds"),
        best_round=entry.mean("best_round"),
        mb_up=float((up / visits).mean()),
        mb_down=float((down / visits).mean()),
        mb_total=float((up + down).mean()),
        seconds=entry.mean("seconds"),
    )


# --- the tables -----------------------------------------------------------------------------------------------------


def comparison_tables(comparison: Comparison) -> list[Table]:
    """An overview of every setting, then two tables per cell: accuracies, and what they cost."""
    details = [table for cell in comparison.cells for table in (_accuracies(cell), _costs(cell))]
    return overviews(comparison) + details


def overviews(comparison: Comparison) -> list[Table]:
    """The paper's tables: a table per setting, with methods against federations."""
    by_setting = group(comparison.cells, lambda cell: (cell.setting, cell.scored_model))
    return [_overview(cells, comparison) for cells in by_setting.values()]


def _overview(cells: Sequence[Cell], comparison: Comparison) -> Table:
    setting, scored = cells[0].setting, cells[0].scored_model
    columns = [Column(_scored_head(scored), numeric=False)]
    columns += [Column(clients_title(cell.clients), cell.dataset_title) for cell in cells]
    summaries = [
        {entry.method.key: row for entry, row in zip(cell.entries, summarise(cell), strict=True)} for cell in cells
    ]
    most = max(row.seeds for summary in summaries for row in summary.values())
    rows = []
    for method in comparison.methods:
        found = [summary.get(method.key) for summary in summaries]
        if any(found):
            ranks = [row.rank for row in found if row and row.rank]
            figures = [_headline(row, most) for row in found]
            rows.append((Value(method.title), *figures, Value(_mean_rank(ranks, len(cells)))))
            if method.algorithm == OURS and any(map(_printed, found)):
                printed = [Value(_printed(row) or NOTHING) for row in found]
                rows.append((Value(f"{method.title}, as published"), *printed, Value(NOTHING)))
    return Table(
        key=slug(f"overview {setting} {scored}"),
        title=f"Test accuracy, {setting}",
        columns=(*columns, Column("mean rank")),
        rows=tuple(rows),
        notes=(_seeds_note(cells), *_comparing_notes(cells), _RANK_NOTE, *standing(cells)),
    )


def standing(cells: Sequence[Cell]) -> list[str]:
    """How FedGKD stands against the others and against its paper, in a sentence; none where there are no others."""
    by_title: dict[str, list[Summary]] = {}
    for cell in cells:
        if len(cell.rivals) > 1:
            for entry, row in zip(cell.entries, summarise(cell), strict=True):
                if entry.method.algorithm == OURS and row.rank:
                    by_title.setdefault(entry.method.title, []).append(row)
    return [_standing(title, rows) for title, rows in by_title.items()]


def _standing(title: str, rows: Sequence[Summary]) -> str:
    first, behind = sum(row.rank == 1 for row in rows), sum(row.worse for row in rows)
    # The paper prints hundredths of a percent.
    differences = [round(row.difference, 4) for row in rows if not math.isnan(row.difference)]
    paper = f"; at or above the paper's number in {sum(d >= 0 for d in differences)} of {len(differences)}"
    return (
        f"{title} is first in {first} of {len(rows)} cells; significantly behind the best in {behind}"
        f"{paper if differences else ''}."
    )


def distances(cells: Sequence[Cell]) -> list[str]:
    """How far below the best each ranked method is on average, in a sentence; none where it would be of one cell."""
    means = [{entry.method.title: entry.mean() for entry in cell.rivals} for cell in cells]
    known = [{title: mean for title, mean in of_cell.items() if not math.isnan(mean)} for of_cell in means]
    contested = [of_cell for of_cell in known if len(of_cell) > 1]
    if len(contested) < 2:
        return []
    behind: dict[str, list[float]] = {}
    for of_cell in contested:
        for title, mean in of_cell.items():
            behind.setdefault(title, []).append(max(of_cell.values()) - mean)
    nearest_first = sorted(behind.items(), key=lambda item: statistics.fmean(item[1]))
    listed = [
        f"{title} {percent(statistics.fmean(gaps))}{_of_fewer(len(gaps), len(contested))}"
        for title, gaps in nearest_first
    ]
    return [f"Mean distance to the best of {len(contested)} cells, in points: {', '.join(listed)}."]


def _accuracies(cell: Cell) -> Table:
    rows = summarise(cell)
    fields = [
        (Column(_scored_head(cell.scored_model)), _headline),
        (Column("rank"), lambda row: Value(str(row.rank or NOTHING))),
        (Column("p"), lambda row: Value(_p_value(row))),
        (Column("mean over nodes", "other figures (%)"), lambda row: Value(percent(row.test_accuracy_weighted))),
        (Column("received models", "other figures (%)"), lambda row: Value(percent(row.test_accuracy_received))),
        (Column("last round", "other figures (%)"), lambda row: Value(percent(row.test_accuracy_last))),
        (Column("macro-F1", "other figures (%)"), lambda row: Value(percent(row.test_macro_f1))),
    ]
    notes = [_seeds_note([cell]), *_comparing_notes([cell])]
    if any(not math.isnan(row.paper) for row in rows):
        fields += [
            (Column("printed", "paper (%)"), lambda row: Value(mean_std(row.paper, row.paper_std))),
            (Column("ours − paper", "paper (%)"), lambda row: Value(signed_percent(row.difference))),
        ]
        notes.append("The paper does not say which model it scores, nor at which round.")
    return _detail(cell, f"accuracies-{cell.key}", f"Accuracy: {cell.title}", fields, rows, notes)


def _costs(cell: Cell) -> Table:
    fields = [
        (Column("rounds"), lambda row: Value(decimal(row.rounds, 1))),
        (Column("best round"), lambda row: Value(decimal(row.best_round, 1))),
        (Column("up", "MB per client and round"), lambda row: Value(decimal(row.mb_up, 3))),
        (Column("down", "MB per client and round"), lambda row: Value(decimal(row.mb_down, 3))),
        (Column("MB in all"), lambda row: Value(decimal(row.mb_total, 1))),
        (Column("seconds"), lambda row: Value(decimal(row.seconds, 1))),
    ]
    notes = [
        "Means over seeds. Seconds are wall time on the machine that ran them; compare them only within one machine."
    ]
    return _detail(cell, f"costs-{cell.key}", f"Cost: {cell.title}", fields, summarise(cell), notes)


def _detail(
    cell: Cell,
    key: str,
    title: str,
    fields: Sequence[tuple[Column, Callable[[Summary], Value]]],
    rows: Sequence[Summary],
    notes: Sequence[str],
) -> Table:
    columns = (Column("method", numeric=False), *(column for column, _ in fields))
    values = tuple(
        (Value(entry.method.title), *(write(row) for _, write in fields))
        for entry, row in zip(cell.entries, rows, strict=True)
    )
    return Table(key, title, columns, values, tuple(notes), cell.key)


def study_table(study: StudyResult) -> Table:
    """Values of the setting against federations; the best of each federation in bold."""
    columns = [Column(study.setting, numeric=False)]
    columns += [Column(_scored_head(line.cell.scored_model), line.cell.title) for line in study.lines]
    best = [max(entry.mean() for entry in line.entries.values()) for line in study.lines]
    rows = tuple(
        (
            Value(str(value)),
            *(_study_value(line.entries.get(value), top) for line, top in zip(study.lines, best, strict=True)),
        )
        for value in study.values
    )
    seeds = _seeds_note_of([entry for line in study.lines for entry in line.entries.values()])
    return Table(f"table-study-{study.key}", study.title, tuple(columns), rows, (seeds, "Best in bold."))


def _study_value(entry: Entry | None, best: float) -> Value:
    if entry is None:
        return Value(NOTHING)
    return Value(mean_std(entry.mean(), entry.std()), best=entry.mean() == best)


def motivation_table(study: Motivation) -> Table:
    """The numbers beside the two pictures."""
    rows = {"embeddings: linear CKA": study.similarity}
    rows |= {f"task feature {kind}: relation r": figures for kind, figures in study.relations.items()}
    rows |= {f"control, {name}": figures for name, figures in study.controls.items()}
    return Table(
        f"table-motivation-{slug(study.name)}",
        f"Motivating study, {dataset_title(study.dataset)}",
        (Column("measure", numeric=False), Column("same task trained twice"), Column("labels flipped")),
        tuple(
            (Value(name), *(Value(_plain_mean_std(figures[pair])) for pair in PAIRS)) for name, figures in rows.items()
        ),
        (
            "1 is alike. A measure that sees the task is high in the first column and low in the second.",
            "The controls measure plain embeddings in ways that, like r and unlike CKA, do not forgive a rotation. "
            "Where they are as low, it is the measure that tells the tasks apart, not the distillation.",
            _seeds_sentence(len(study.similarity[PAIRS[0]])),
        ),
    )


def runs_table(runs: Sequence[FinishedRun]) -> Table:
    """Every run by itself, studies and all."""
    texts, numbers = ("run", "method", "federation", "scored model"), ("seed", "rounds", "best round", "seconds")
    columns = [*(Column(head, numeric=False) for head in texts), *map(Column, numbers), Column("test accuracy (%)")]
    return Table("all-runs", "All finished runs", tuple(columns), tuple(map(_run_row, runs)))


def _run_row(run: FinishedRun) -> tuple[Value, ...]:
    result = run.result
    federation = f"{dataset_title(result['dataset'])}, {result['setting']}, {clients_title(result['clients'])}"
    accuracy = math.nan if result["test_accuracy"] is None else result["test_accuracy"]
    texts = (run.name, method_title(result["algorithm"]), federation, result["scored_model"])
    numbers = (result["seed"], result["rounds"], result["best_round"], decimal(result["seconds"], 1), percent(accuracy))
    return tuple(Value(str(text)) for text in (*texts, *numbers))


def failed_table(failed: Sequence[FailedRun]) -> Table:
    columns = tuple(Column(head, numeric=False) for head in ("run", "algorithm", "dataset", "seed", "error"))
    rows = tuple(
        tuple(
            Value(str(text))
            for text in (
                run.name,
                *(run.settings.get(name, NOTHING) for name in ("algorithm", "dataset", "seed")),
                run.error,
            )
        )
        for run in failed
    )
    return Table("failed", "Failed runs", columns, rows)


# --- what stands in them --------------------------------------------------------------------------------------------

_RANK_NOTE = "Mean rank over the federations that a method ran on; their number in brackets where it is not all."


def _scored_head(scored_model: str) -> str:
    return f"test accuracy (%), {scored_models(scored_model)}"


def _headline(row: Summary | None, seeds: int = 0) -> Value:
    """Mean and deviation; the number of seeds where it is below the usual one."""
    if row is None:
        return Value(NOTHING)
    fewer = f" ({row.seeds} seed{'s' * (row.seeds > 1)})" if row.seeds < seeds else ""
    figure = mean_std(row.test_accuracy, row.test_accuracy_std)
    return Value(figure + fewer, best=row.rank == 1, worse=row.worse)


def _printed(row: Summary | None) -> str:
    """The paper's figure."""
    return "" if row is None or math.isnan(row.paper) else mean_std(row.paper, row.paper_std)


def _mean_rank(ranks: Sequence[int], cells: int) -> str:
    if not ranks:
        return NOTHING
    return f"{statistics.fmean(ranks):.2f}" + _of_fewer(len(ranks), cells)


def _of_fewer(cells: int, all_cells: int) -> str:
    """How many cells a figure is of, where it is not all."""
    return f" ({cells})" if cells < all_cells else ""


def _seeds_note(cells: Sequence[Cell]) -> str:
    return _seeds_note_of([entry for cell in cells for entry in cell.entries])


def _seeds_note_of(entries: Sequence[Entry]) -> str:
    return _seeds_sentence(*(len(entry.runs) for entry in entries))


def _seeds_sentence(*numbers: int) -> str:
    fewest, most = min(numbers), max(numbers)
    if most == 1:
        return "One seed."
    seeds = f"{most}" if fewest == most else f"{fewest} to {most}"
    return f"Mean ± sample standard deviation over {seeds} seeds."


def _comparing_notes(cells: Sequence[Cell]) -> list[str]:
    """Notes on what can only be said of several methods."""
    notes = [f"{title} sees all graphs at once: a ceiling, not ranked." for title in sorted(_oracles(cells))]
    if all(len(cell.rivals) < 2 for cell in cells):
        return notes
    best = cells[0].best() if len(cells) == 1 else None
    against = best.method.title if best else "the best of the federation"
    return [
        *notes,
        "Best mean of each federation in bold; rank 1 is the best.",
        f"p and *: two-sided Wilcoxon signed-rank test against {against}, over the test accuracies of all pairs "
        f"(seed, client), Holm-corrected; * where p < {LEVEL}. Clients of one seed learn together, so p is a guide, "
        "not a proof.",
    ]


def _oracles(cells: Sequence[Cell]) -> set[str]:
    return {entry.method.title for cell in cells for entry in cell.entries if not entry.method.ranked}


def _p_value(row: Summary) -> str:
    if math.isnan(row.p_value):
        return NOTHING
    return "< 0.001" if row.p_value < 0.001 else f"{row.p_value:.3f}"


def percent(share: float) -> str:
    return decimal(100 * share, 2)


def signed_percent(share: float) -> str:
    return NOTHING if math.isnan(share) else f"{100 * share:+.2f}".replace("-", "−")


def mean_std(mean: float, std: float) -> str:
    return percent(mean) if math.isnan(std) else f"{percent(mean)} ± {percent(std)}"


def _plain_mean_std(values: Sequence[float]) -> str:
    mean = f"{statistics.fmean(values):.3f}".replace("-", "−")
    return f"{mean} ± {statistics.stdev(values):.3f}" if len(values) > 1 else mean


def decimal(value: float, digits: int) -> str:
    return NOTHING if math.isnan(value) else f"{value:.{digits}f}"
