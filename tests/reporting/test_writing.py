"""A report on disk: all of it or nothing, and never in the place of something else."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from fedgkd.errors import RunError
from fedgkd.reporting import writing
from fedgkd.reporting.report import read_report
from fedgkd.reporting.writing import write_report
from tests.reporting.written import write_comparison, write_run


def test_all_files(tmp_path: Path) -> None:
    write_comparison(tmp_path / "runs", ("local", "fedgkd"), seeds=2)
    files = write_report(read_report(tmp_path / "runs"), tmp_path / "out")
    assert [path.name for path in files] == ["report.html", "tables.md", "tables.tex", "tables.csv", "figures"]
    assert all(path.exists() for path in files)
    with (tmp_path / "out" / "tables.csv").open() as file:
        rows = list(csv.DictReader(file))
    # 60 and 61, then 65 and 66 % with 10 % more from client to client.
    assert [(row["algorithm"], float(row["test_accuracy"])) for row in rows] == [
        ("local", pytest.approx(0.705)),
        ("fedgkd", pytest.approx(0.755)),
    ]
    assert "**75.50 ± 0.71**" in (tmp_path / "out" / "tables.md").read_text()
    assert r"\textbf{75.50 $\pm$ 0.71}" in (tmp_path / "out" / "tables.tex").read_text()


def test_a_report_replaces_a_report(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a")
    report = read_report(tmp_path / "runs")
    write_report(report, tmp_path / "out")
    (tmp_path / "out" / "tables.md").write_text("old")
    write_report(report, tmp_path / "out")
    assert "Test accuracy" in (tmp_path / "out" / "tables.md").read_text()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_nothing_else_is_replaced(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a")
    report = read_report(tmp_path / "runs")
    with pytest.raises(RunError, match=r"runs holds other files than a report \(a\); choose another --out"):
        write_report(report, tmp_path / "runs")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match="is a file; choose another --out"):
        write_report(report, tmp_path / "file")
    assert (tmp_path / "runs" / "a" / "result.json").exists()


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "runs" / "a")
    report = read_report(tmp_path / "runs")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "save_chart", full_disk)
    with pytest.raises(RunError, match=r"cannot write .*out: No space left on device"):
        write_report(report, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
