"""The driver of the whole evidence: its commands, that it goes on, and a whole small one."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedgkd.algorithms import METHODS
from fedgkd.cli import app
from fedgkd.reporting.compact import read_collected
from scripts import evidence

TINY = (
    "--",
    "--synthetic",
    "num_nodes=600",
    "num_communities=4",
    "num_features=8",
    "--rounds",
    "1",
    "--set",
    "hidden=4",
)
OTHERS = [method for method in evidence.METHODS if method not in ("local", "fedavg")]
SMALL = ("--graphs", "synthetic", "--settings", "non-overlapping", "--trials", "2", "--work", "work")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert evidence.main([*arguments, "--dry-run"]) == 0
    return capsys.readouterr().out.splitlines()


def test_every_method_is_there() -> None:
    assert sorted(evidence.METHODS) == sorted(METHODS)


def test_cheap_graphs_first_each_tuned_before_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    commands = planned(capsys, "--without", *OTHERS)
    assert [command.split()[1] for command in commands] == ["tune", "tune", "compare", "collect"] * 10
    assert [command.rpartition("results/")[2] for command in commands[3::8]] == [
        f"{graph}.jsonl" for graph in ("cora", "citeseer", "photo", "pubmed", "computers")
    ]
    assert commands[4:8] == [
        *(
            f"fedgkd tune --algorithm {method} --dataset cora --partition overlapping --clients 30 --trials 8 "
            "--seeds 1 --first-seed 3 --set threads=1 --out runs/evidence/tuning "
            f"--winner configs/cora-overlapping-{method}.toml"
            for method in ("local", "fedavg")
        ),
        "fedgkd compare --dataset cora --partition overlapping --out runs/evidence/cora-overlapping "
        "--algorithms local fedavg --seeds 3 --configs configs --jobs 1 --set threads=1",
        "fedgkd collect runs/evidence/cora-overlapping --out results/cora.jsonl",
    ]


def test_what_is_tuned_is_not_tuned_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "cora-non-overlapping-local.toml").touch()
    commands = planned(capsys, "--graphs", "cora", "--settings", "non-overlapping", "--without", *OTHERS)
    assert [command.split()[1:4] for command in commands if " tune " in command] == [["tune", "--algorithm", "fedavg"]]


def test_nothing_is_run_untuned(capsys: pytest.CaptureFixture[str]) -> None:
    called: list[str] = []

    def run(command: list[str]) -> bool:
        called.append(command[0])
        return command[0] != "tune"

    assert evidence.main([*SMALL, "--without", *OTHERS], run) == 1
    assert called == ["tune", "tune"]
    assert "not complete: synthetic non-overlapping" in capsys.readouterr().err


def test_runs_that_failed_do_not_keep_the_others_from_being_collected() -> None:
    called: list[str] = []

    def run(command: list[str]) -> bool:
        called.append(command[0])
        return command[0] != "compare"

    assert evidence.main([*SMALL, "--without", *OTHERS], run) == 1
    assert called == ["tune", "tune", "compare", "collect"]


def test_a_whole_one_and_a_method_added_later(tmp_path: Path) -> None:
    called: list[str] = []

    def run(command: list[str]) -> bool:
        called.append(command[0])
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        return True

    file = tmp_path / "results" / "synthetic.jsonl"
    assert evidence.main([*SMALL, "--without", *OTHERS, "fedavg", *TINY], run) == 0
    assert len(read_collected(file).runs) == 9
    assert evidence.main([*SMALL, "--without", *OTHERS, *TINY], run) == 0
    assert called == ["tune", "compare", "collect"] * 2
    lines = [json.loads(text) for text in file.read_text().splitlines()[1:]]
    assert [(line["algorithm"], line["clients"], line["seed"]) for line in lines] == [
        (algorithm, clients, seed) for clients in (5, 10, 20) for algorithm in ("fedavg", "local") for seed in range(3)
    ]
    tuned = tomllib.loads((tmp_path / "configs" / "synthetic-non-overlapping-fedavg.toml").read_text())
    runs = read_collected(file).runs
    assert {name: runs[0].settings[name] for name in ("lr", "local_epochs")} == {
        name: tuned[name] for name in ("lr", "local_epochs")
    }
