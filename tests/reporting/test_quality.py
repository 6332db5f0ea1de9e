"""The study of the relation in numbers, from runs written by hand."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from fedgkd.reporting.compact import collect
from fedgkd.reporting.quality import quality_charts, quality_rows, quality_tables, write_quality
from fedgkd.reporting.report import Report, read_report
from fedgkd.reporting.writing import write_report
from tests.reporting.written import write_relation_study, write_run, write_study


@pytest.fixture
def report(tmp_path: Path) -> Report:
    write_relation_study(tmp_path / "runs")
    return read_report(tmp_path / "runs")


def test_a_row_per_variant_with_its_quality_bytes_and_accuracy(report: Report) -> None:
    default, centred, old, fedpub = quality_rows(report.studies)
    assert [row["variant"] for row in (default, centred, old, fedpub)] == [
        "default",
        "centred",
        "fedgkd-gamma=7",
        "FED-PUB",
    ]
    assert [default[f"quality_{number}"] for number in (5, 20, 40)] == pytest.approx([0.5, 2.0, 4.0])
    assert default["quality"] == pytest.approx(6.5 / 3)
    assert (default["seeds"], default["feature_bytes"]) == (2, 160)
    assert default["val_accuracy"] == pytest.approx((0.79 + 0.69) / 2)
    assert centred["quality"] == centred["quality_5"] == pytest.approx(0.5)
    assert all(math.isnan(row["quality"]) for row in (old, fedpub))


def test_the_rows_are_the_same_from_collected_runs(report: Report, tmp_path: Path) -> None:
    collect([tmp_path / "runs"], tmp_path / "study.jsonl")
    collected = {row["variant"]: row for row in quality_rows(read_report(tmp_path / "study.jsonl").studies)}
    assert len(collected) == 4
    for row in quality_rows(report.studies):
        assert collected[row["variant"]] == pytest.approx(row, nan_ok=True)


def test_bytes_of_collected_runs_are_not_guessed_where_clients_stayed_away(tmp_path: Path) -> None:
    write_study(tmp_path / "runs", "relation", ["default"])
    write_run(tmp_path / "runs" / "a", participation=0.5, rounds=5, relations="R")
    collect([tmp_path / "runs"], tmp_path / "study.jsonl")
    (row,) = quality_rows(read_report(tmp_path / "study.jsonl").studies)
    assert math.isnan(row["feature_bytes"])
    assert row["quality"] == pytest.approx(0.5)


def test_the_table_stands_among_those_of_the_report(report: Report, tmp_path: Path) -> None:
    (table,) = quality_tables(report.studies)
    assert table in report.study_tables
    assert table.title == "Relation: Cora, non-overlapping, 3 clients"
    texts = {row[0].text: [value.text for value in row[1:]] for row in table.rows}
    assert texts["default"] == ["0.50", "2.00", "4.00", "2.167", "160", "74.00"]
    assert texts["centred"] == ["0.50", "–", "–", "0.500", "160", "79.00"]
    assert [row[4].best for row in table.rows] == [True, False, False, False]
    assert table.notes[0] == "Means over seeds; number of seeds: 1 to 2."
    write_report(report, tmp_path / "report")
    assert table.key in (tmp_path / "report" / "report.html").read_text()


def test_the_files(report: Report, tmp_path: Path) -> None:
    files = write_quality(report.studies, tmp_path)
    assert [path.name for path in files] == ["study_relation.md", "study_relation.csv", "study_relation.json"]
    rows = json.loads((tmp_path / "study_relation.json").read_text())
    assert rows[-1] | {"quality": None, "quality_40": None} == rows[-1]
    with (tmp_path / "study_relation.csv").open() as file:
        assert [row["variant"] for row in csv.DictReader(file)] == [row["variant"] for row in rows]
    assert "| default | 0.50 | 2.00 | 4.00 | **2.167** |" in (tmp_path / "study_relation.md").read_text()


def test_other_studies_have_no_such_table(tmp_path: Path) -> None:
    write_study(tmp_path / "tau", "tau", [0.1])
    write_run(tmp_path / "tau" / "a", tau=0.1)
    studies = read_report(tmp_path).studies
    assert quality_rows(studies) == quality_tables(studies) == write_quality(studies, tmp_path) == []


def test_a_chart_for_every_federation(report: Report) -> None:
    (chart,) = quality_charts(report.studies)
    assert chart.name in [shown.name for shown in report.study_charts]
    assert chart.x.ticks == tuple(str(row["variant"]) for row in quality_rows(report.studies))
    assert [series.label for series in chart.series] == ["round 5", "round 20", "round 40"]
    assert [series.y[0] for series in chart.series] == [0.5, 2.0, 4.0]  # the default's
