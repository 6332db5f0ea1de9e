"""The study of the relation: how well each variant of FedGKD relates the clients, at what cost, and what it gains."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedgkd.atomic import atomic_write_text
from fedgkd.errors import RunError
from fedgkd.experiments.plain import plain
from fedgkd.fields import FEATURES
from fedgkd.reporting.comparison import Entry
from fedgkd.reporting.figures import Axis, Chart, Series
from fedgkd.reporting.formats import to_markdown
from fedgkd.reporting.methods import numbered_style
from fedgkd.reporting.records import FinishedRun
from fedgkd.reporting.studies import StudyLine, StudyResult
from fedgkd.reporting.tables import Column, Table, Value, decimal, percent

RELATION = "relation"
FILE = "study_relation"

ROUNDS = (5, 20, 40)
"""Where the relation is looked at."""

Row = dict[str, Any]


def quality_rows(studies: Iterable[StudyResult]) -> list[Row]:
    """A row per variant and federation of the studies of the relation, in numbers; means over seeds."""
    lines = [line for study in studies if study.name == RELATION for line in study.lines]
    return [row for line in lines for row in _rows(line)]


def quality_tables(studies: Iterable[StudyResult]) -> list[Table]:
    """A table per federation of the studies of the relation."""
    return [_table(line) for study in studies if study.name == RELATION for line in study.lines]


def quality_charts(studies: Iterable[StudyResult]) -> list[Chart]:
    """A chart per federation of the studies of the relation: each variant's quality at those rounds."""
    return [_chart(line) for study in studies if study.name == RELATION for line in study.lines]


def write_quality(studies: Iterable[StudyResult], folder: Path) -> list[Path]:
    """``study_relation.md``, ``.csv`` and ``.json``; nothing if there is no such study."""
    import pandas as pd

    studies = list(studies)
    rows = quality_rows(studies)
    if not rows:
        return []
    texts = {
        f"{FILE}.md": "\n".join(map(to_markdown, quality_tables(studies))),
        f"{FILE}.csv": pd.DataFrame(rows).to_csv(index=False),
        f"{FILE}.json": json.dumps(plain(rows), indent=2) + "\n",
    }
    for name, text in texts.items():
        atomic_write_text(folder / name, text, RunError)
    return [folder / name for name in texts]


def _rows(line: StudyLine) -> Iterator[Row]:
    cell = line.cell
    for variant, entry in line.entries.items():
        place = {"dataset": cell.dataset, "setting": cell.setting, "clients": cell.clients, "data": cell.data}
        yield {"variant": variant, **place, "seeds": len(entry.runs), **_figures(entry)}


def _figures(entry: Entry) -> dict[str, float]:
    quality = np.mean([_qualities(run) for run in entry.runs], axis=0)
    # A round that was not reached is left out of the mean; a relation without a quality is not passed over.
    reached = [number <= entry.values("rounds").min() for number in ROUNDS]
    return {
        **{f"quality_{number}": value for number, value in zip(ROUNDS, quality.tolist(), strict=True)},
        "quality": float(quality[reached].mean()) if any(reached) else float("nan"),
        "feature_bytes": float(np.mean([_feature_bytes(run) for run in entry.runs])),
        "val_accuracy": entry.mean("val_accuracy"),
    }


def _qualities(run: FinishedRun) -> list[float]:
    by_round = run.relation_quality(ROUNDS)
    return [by_round.get(number, float("nan")) for number in ROUNDS]


def _feature_bytes(run: FinishedRun) -> float:
    """What a client uploads in a round beside weights, counts and metrics; NaN if the run did not count it."""
    return float(run.result.get(FEATURES, math.nan) / run.visits())


def _chart(line: StudyLine) -> Chart:
    rows = list(_rows(line))
    places = np.arange(len(rows), dtype=np.float64)
    series = [
        Series(
            f"round {number}",
            f"round-{number}",
            numbered_style(index),
            places,
            np.array([row[f"quality_{number}"] for row in rows]),
            line=False,
        )
        for index, number in enumerate(ROUNDS)
    ]
    return Chart(
        "relation-variants",
        line.cell.key,
        f"Relation quality: {line.cell.title}",
        "Spearman correlation over client pairs between the relation and the likeness of the clients' true label "
        "distributions, mean over seeds: 1 is perfect, 0 is chance.",
        Axis("variant", tuple(str(row["variant"]) for row in rows)),
        Axis("Spearman correlation"),
        tuple(series),
    )


def _table(line: StudyLine) -> Table:
    rows = list(_rows(line))
    best = {name: np.nanmax([*(row[name] for row in rows), -np.inf]) for name in ("quality", "val_accuracy")}
    columns = [
        Column("variant", numeric=False),
        *(Column(str(number), "Spearman at round") for number in ROUNDS),
        Column("mean"),
        Column("bytes of the task feature"),
        Column("validation accuracy (%)"),
    ]
    values = tuple(
        (
            Value(str(row["variant"])),
            *(Value(decimal(row[f"quality_{number}"], 2)) for number in ROUNDS),
            Value(decimal(row["quality"], 3), best=row["quality"] == best["quality"]),
            Value(decimal(row["feature_bytes"], 0)),
            Value(percent(row["val_accuracy"]), best=row["val_accuracy"] == best["val_accuracy"]),
        )
        for row in rows
    )
    seeds = [row["seeds"] for row in rows]
    notes = (
        f"Means over seeds; number of seeds: {' to '.join(map(str, sorted({min(seeds), max(seeds)})))}.",
        "Spearman correlation over pairs of clients of the relation with minus the Jensen-Shannon divergence of their "
        "labels. Bytes per client and round. Best in bold.",
    )
    return Table(
        f"table-study-relation-quality-{line.cell.key}", f"Relation: {line.cell.title}", tuple(columns), values, notes
    )
