"""``fedgkd report`` at the prompt."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fedgkd.cli import app, console
from fedgkd.cli.tables import print_report, print_table
from fedgkd.reporting.report import read_report
from fedgkd.reporting.tables import Column, Table, Value
from tests.reporting.written import write_comparison, write_relation_study, write_run, write_study


def fedgkd(*args: str | Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["report", *map(str, args)])
    return done.exit_code, done.stdout, done.stderr


def test_tables_and_paths(tmp_path: Path) -> None:
    write_comparison(tmp_path, ("local", "fedgkd"))
    code, out, err = fedgkd(tmp_path)
    assert code == 0, err
    assert "Test accuracy, non-overlapping" in out
    assert "test accuracy (%), just-trained models" in out
    assert "76.00 ± 1.00" in out
    assert "Cost: Cora, non-overlapping, 3 clients" in out
    for name in ("report.html", "tables.md", "tables.tex", "tables.csv", "figures"):
        assert str(tmp_path / "report" / name) in out
        assert (tmp_path / "report" / name).exists()


def test_again_and_elsewhere(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a")
    assert fedgkd(tmp_path / "runs")[0] == 0
    assert fedgkd(tmp_path / "runs")[0] == 0
    assert fedgkd(tmp_path / "runs", "--out", tmp_path / "out")[0] == 0
    assert (tmp_path / "out" / "report.html").exists()


def test_json(tmp_path: Path) -> None:
    write_comparison(tmp_path / "runs", ("local", "fedgkd"))
    write_study(tmp_path / "tau", "tau", [0.1])
    write_run(tmp_path / "tau" / "a", tau=0.1)
    code, out, _ = fedgkd(tmp_path, "--json")
    assert code == 0
    found = json.loads(out)
    assert [(row["algorithm"], row["rank"]) for row in found["results"]] == [("local", 2), ("fedgkd", 1)]
    assert found["results"][1]["p_value"] is None
    assert [found["studies"][0][name] for name in ("varied", "value", "algorithm")] == ["tau", 0.1, "fedgkd"]
    assert found["files"][0] == str(tmp_path / "report" / "report.html")


def test_details_only_while_there_are_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for clients in range(1, 6):
        write_run(tmp_path / str(clients), per_client=[0.8] * clients)
    print_report(read_report(tmp_path))
    out = capsys.readouterr().out
    assert "Test accuracy, non-overlapping" in out
    assert "Cost:" not in out


def test_wide_tables_are_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "out", Console(width=40))
    columns = (Column("method", numeric=False), *(Column(f"federation-{k}") for k in range(3)))
    rows = ((Value("FedGKD"), Value("80.00", best=True), Value("81.00", worse=True), Value("82.00")),)
    print_table(Table("key", "Wide", columns, rows, ("A note.",)))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line and line[0] == "FedGKD"] == [
        ["FedGKD", "80.00", "81.00", "*"],
        ["FedGKD", "82.00"],
    ]
    assert lines[-1] == ["A", "note."]


def test_heads_break_and_figures_do_not(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "out", Console(width=40))
    columns = (Column("method", numeric=False), *(Column(f"a long head {k}") for k in range(3)))
    print_table(Table("key", "Wide", columns, ((Value("FedGKD"), *[Value("80.00 ± 1.0")] * 3),)))
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 40 for line in lines)
    assert [line.split() for line in lines if line.startswith("FedGKD")] == [
        ["FedGKD", *["80.00", "±", "1.0"] * 2],
        ["FedGKD", "80.00", "±", "1.0"],
    ]


def test_warnings_go_to_stderr(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    (write_run(tmp_path / "b") / "result.json").unlink()
    code, out, err = fedgkd(tmp_path)
    assert code == 0
    assert "warning: 1 run is not finished and left out: b." in err
    assert "not finished" not in out


def test_nothing_to_report(tmp_path: Path) -> None:
    code, out, err = fedgkd(tmp_path)
    assert (code, out) == (2, "")
    assert err.replace("\n", " ").startswith(f"error: {tmp_path} holds no runs; give the folder that")
    assert not (tmp_path / "report").exists()


def test_a_damaged_record_leaves_no_report(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    (folder / "metrics.jsonl").write_text("{\n" * 4)
    code, _, err = fedgkd(tmp_path)
    assert code == 2
    assert "metrics.jsonl, line 1, is not JSON" in err.replace("\n", "")
    assert not (tmp_path / "report").exists()


# --- collect and tables ----------------------------------------------------------------------------------------------


def typed(*args: str | Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(map(str, args)))
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def collected(tmp_path: Path) -> Path:
    write_comparison(tmp_path / "runs", ("local", "fedgkd"))
    code, out, err = typed("collect", tmp_path / "runs", "--out", tmp_path / "cora.jsonl")
    assert code == 0, err
    assert "cora.jsonl: 6 runs, 6 new, 0 changed" in out.replace("\n", "")
    return tmp_path / "cora.jsonl"


STANDING = "FedGKD is first in 1 of 1 cells; significantly behind the best in 0."


def test_tables_of_a_file_and_of_a_folder(collected: Path) -> None:
    for path in (collected, collected.parent / "runs"):
        code, out, err = typed("tables", path)
        assert code == 0, err
        assert "Test accuracy, non-overlapping" in out
        assert out.rstrip().endswith(STANDING)


def test_tables_as_text(collected: Path) -> None:
    texts = {name: typed("tables", collected, "--format", name)[1] for name in ("md", "csv", "latex")}
    assert "| FedGKD | **76.00 ± 1.00** | – | – | – | 1.00 (1) |" in texts["md"]
    assert texts["md"].endswith(f"\n{STANDING}\n")
    assert texts["csv"].startswith("dataset,setting,clients,")
    assert texts["latex"].startswith("% needs \\usepackage{booktabs}\n\\begin{table*}")


def test_tables_of_collected_records_load_no_torch(collected: Path) -> None:
    """It takes seconds to import, and the tables need nothing of it."""
    program = (
        "import sys\nfrom fedgkd.cli import main\nsys.argv = ['fedgkd', 'tables', sys.argv[1]]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print(*(name for name in ('torch', 'optuna', 'networkx') if name in sys.modules), 'end')"
    )
    done = subprocess.run([sys.executable, "-c", program, collected], capture_output=True, text=True, check=True)
    assert "FedGKD" in done.stdout
    assert done.stdout.splitlines()[-1].split() == ["end"]


def test_tables_without_some_algorithms(tmp_path: Path) -> None:
    write_comparison(tmp_path, ("local", "fedavg", "fedgkd"))
    code, out, err = typed("tables", tmp_path, "--without", "local", "fedavg", "--format", "md")
    assert code == 0, err
    assert "| FedGKD | " in out
    assert "| Local" not in out
    assert "| FedAvg" not in out
    assert "Left out: Local, FedAvg." in out
    assert typed("tables", tmp_path, "--without", "Local", "FedAvg", "--format", "md")[1] == out


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["locl"], "there is no finished run of 'locl'; did you mean 'local'?"),
        (["gcfl"], "there is no finished run of 'gcfl'; there are fedgkd, local"),
        (["local", "FedGKD"], "without fedgkd, local there are no runs left"),
    ],
)
def test_leaving_out_what_is_not_there_or_all_there_is(collected: Path, names: list[str], sentence: str) -> None:
    code, _, err = typed("tables", collected, "--without", *names)
    assert code == 2
    assert sentence in err.replace("\n", " ")


def test_tables_of_a_relation_study(tmp_path: Path) -> None:
    write_relation_study(tmp_path / "runs")
    typed("collect", tmp_path / "runs", "--out", tmp_path / "relation.jsonl")
    code, out, err = typed("tables", tmp_path / "relation.jsonl", "--format", "md")
    assert code == 0, err
    assert "## Relation: Cora, non-overlapping, 3 clients" in out
    assert "| default | 0.50 | 2.00 | 4.00 | **2.167** | 160 | 74.00 |" in out


def test_collecting_in_json(collected: Path) -> None:
    _, out, _ = typed("collect", collected.parent / "runs", "--out", collected, "--json")
    assert json.loads(out) == {"lines": 6, "new": 0, "changed": 0}


def test_a_file_has_no_rounds_to_draw(collected: Path) -> None:
    code, _, err = fedgkd(collected)
    assert code == 2
    assert "has no rounds to draw; its tables: fedgkd tables" in err.replace("\n", " ")
