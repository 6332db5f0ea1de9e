"""``fedgkd compare``, ``tune`` and ``ablate`` as they are typed."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fedgkd.cli import app
from fedgkd.data.own import write_federation
from tests.graphs import planted_federation

SMALL = ("--set", "hidden=8", "threads=1", "patience=0")
SYNTHETIC = ("--dataset", "synthetic", "--synthetic", "num_nodes=80", "num_communities=4", "num_features=8")


def fedgkd(*args: str | Path) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture
def graphs(tmp_path: Path) -> Path:
    write_federation(planted_federation(3, nodes=30), tmp_path / "graphs")
    return tmp_path / "graphs"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def results(folder: Path) -> dict[str, dict[str, object]]:
    """The results of all runs, without the times."""
    found = {path.parent.name: json.loads(path.read_text()) for path in folder.glob("*/result.json")}
    return {name: {key: value for key, value in result.items() if key != "seconds"} for name, result in found.items()}


@pytest.mark.parametrize("command", ["compare", "tune", "ablate"])
def test_help_imports_nothing_heavy(command: str) -> None:
    code = (
        "import sys\nfrom fedgkd.cli import app\ntry:\n    app(sys.argv[1:])\nfinally:\n"
        "    print('heavy:', [name for name in ('torch', 'numpy', 'optuna', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, command, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("heavy: []")


def test_compare_runs_the_grid_and_shows_the_table(tmp_path: Path) -> None:
    command = ["compare", *SYNTHETIC, "--clients", "2", "3", "--algorithms", "fedgkd", "local", "--seeds", "2"]
    command += ["--rounds", "2", *SMALL, "--out", str(tmp_path / "out")]
    done = fedgkd(*command)
    assert done.exit_code == 0, done.output
    assert names(tmp_path / "out") == [
        f"synthetic-{clients}-non-overlapping-{algorithm}-seed{seed}"
        for clients in (2, 3)
        for algorithm in ("fedgkd", "local")
        for seed in (0, 1)
    ]
    lines = done.stderr.splitlines()
    assert [line.split()[0] for line in lines] == [f"[{k}/8]" for k in range(1, 9)]
    assert "synthetic-2-non-overlapping-fedgkd-seed0" in lines[0]
    assert "FedGKD" in done.stdout
    assert "3 clients" in done.stdout
    assert "Cost: Synthetic, non-overlapping, 3 clients" in done.stdout
    assert f"fedgkd report {tmp_path / 'out'}" in done.stdout.replace("\n", "")
    with (tmp_path / "out" / "tables.csv").open() as file:
        assert [(row["clients"], row["algorithm"], row["seeds"]) for row in csv.DictReader(file)] == [
            (clients, algorithm, "2") for clients in "23" for algorithm in ("local", "fedgkd")
        ]
    assert "Cost: Synthetic" in (tmp_path / "out" / "tables.md").read_text()
    assert r"\toprule" in (tmp_path / "out" / "tables.tex").read_text()

    again = fedgkd(*command)
    assert again.exit_code == 0
    assert again.stderr == "finished already: 8 of 8 runs\n"
    assert again.stdout == done.stdout

    more = fedgkd(*command, "--algorithms", "fedavg", "--json")
    assert more.exit_code == 0
    outcomes = json.loads(more.stdout)
    assert len(outcomes) == 12
    assert {outcome["result"]["algorithm"] for outcome in outcomes} == {"fedgkd", "local", "fedavg"}


def test_all_means_the_oracle_too(tmp_path: Path) -> None:
    from fedgkd.algorithms import METHODS

    command = ("compare", *SYNTHETIC, "--clients", "2", "--algorithms", "all", "--seeds", "1", "--rounds", "1", *SMALL)
    done = fedgkd(*command, "--out", tmp_path, "--json")
    assert done.exit_code == 0, done.output
    assert [outcome["result"]["algorithm"] for outcome in json.loads(done.stdout)] == list(METHODS)
    assert "centralised" in METHODS


def test_a_failed_run_is_named_and_the_others_count(tmp_path: Path, graphs: Path) -> None:
    (tmp_path / "broken.npz").touch()
    done = fedgkd(
        "compare", "--graphs", graphs, "--dataset", tmp_path / "broken.npz", "--clients", "2",
        "--algorithms", "local", "--seeds", "1", "--rounds", "1", *SMALL, "--out", tmp_path / "out",
    )  # fmt: skip
    assert done.exit_code == 1
    assert "Local" in done.stdout
    assert "error: 1 of 2 runs failed, broken-2-non-overlapping-local-seed0 with: " in done.stderr
    assert "broken.npz" in json.loads(
        (tmp_path / "out/broken-2-non-overlapping-local-seed0/failed.json").read_text()
    )["error"]  # fmt: skip
    assert "Traceback" not in done.output


def test_dry_run_lists_and_writes_nothing(tmp_path: Path, graphs: Path) -> None:
    command = ("compare", "--graphs", graphs, "--algorithms", "local", "fedavg", "--seeds", "2", *SMALL)
    done = fedgkd(*command, "--out", tmp_path / "out", "--dry-run")
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "out").exists()
    assert done.stdout.count("3 measured rounds") == 4
    assert "in all about" in done.stdout
    assert fedgkd(*command, "--rounds", "1", "--seeds", "1", "--out", tmp_path / "out").exit_code == 0
    plan = json.loads(fedgkd(*command, "--rounds", "1", "--out", tmp_path / "out", "--dry-run", "--json").stdout)
    assert [(entry["run"][-5:], entry["state"], entry["basis"]) for entry in plan] == [
        ("seed0", "finished", ""),
        ("seed0", "finished", ""),
        ("seed1", "new", "mean of 1 finished"),
        ("seed1", "new", "mean of 1 finished"),
    ]


def _start(command: Sequence[str | Path]) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "fedgkd", *map(str, command)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _rounds_written(out: Path) -> int:
    return sum(len(file.read_bytes().splitlines()) for file in out.glob("*/metrics.jsonl"))


def _wait_for_rounds(out: Path, rounds: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 90
    while _rounds_written(out) < rounds and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def test_killed_and_started_again_equals_uninterrupted(tmp_path: Path, graphs: Path) -> None:
    """SIGKILL takes the workers along, and what they have done is taken up."""
    command = ["compare", "--graphs", graphs, "--algorithms", "fedgkd", "local", "fedavg", "--seeds", "1"]
    command += ["--rounds", "200", *SMALL, "--out"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert fedgkd(*command, whole).exit_code == 0
    with _start([*command, killed, "--jobs", "2"]) as process:
        _wait_for_rounds(killed, 40, process)
        process.kill()
        process.communicate()
    time.sleep(0.3)
    before = _rounds_written(killed)
    time.sleep(0.7)
    assert _rounds_written(killed) == before, "a worker outlived the command"
    assert len(results(killed)) < 3
    done = fedgkd(*command, killed)
    assert done.exit_code == 0, done.output
    assert results(killed) == results(whole)
    for model in whole.glob("*/models/*"):
        assert (killed / model.relative_to(whole)).read_bytes() == model.read_bytes()


def test_ctrl_c_ends_the_workers_and_says_how_to_go_on(tmp_path: Path, graphs: Path) -> None:
    command = ["compare", "--graphs", graphs, "--algorithms", "local", "fedavg", "--seeds", "1", "--rounds", "9999"]
    with _start([*command, *SMALL, "--out", tmp_path / "out", "--jobs", "2"]) as process:
        _wait_for_rounds(tmp_path / "out", 5, process)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said == "\nstopped; the same command goes on\n"
    before = _rounds_written(tmp_path / "out")
    time.sleep(0.5)
    assert _rounds_written(tmp_path / "out") == before
    assert not list((tmp_path / "out").glob("*/failed.json"))


def test_tuned_settings_go_to_compare_and_run(tmp_path: Path, graphs: Path) -> None:
    small = ("--set", "hidden=8", "threads=1")
    tuned = tmp_path / "tuned"
    done = fedgkd(
        "tune", "--algorithm", "fedavg", "--graphs", graphs, "--trials", "3", "--seeds", "1", "--rounds", "2",
        "--try", "lr=0.02,0.03", "dropout=0.1,0.2", *small, "local_epochs=1", "--out", tuned,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert [line.split()[:2] for line in done.stderr.splitlines()] == [["trial", str(k)] for k in (1, 2, 3)]
    file = tuned / "planted-3-own-graphs-fedavg.toml"
    assert str(file) in done.stdout.replace("\n", "")
    ran = fedgkd("run", "--config", file, "--out", tmp_path / "run", "--json")
    assert ran.exit_code == 0, ran.output
    compared = fedgkd(
        "compare", "--graphs", graphs, "--algorithms", "fedavg", "local", "--seeds", "1",
        "--rounds", "2", *small, "--configs", tuned, "--out", tmp_path / "out", "--json",
    )  # fmt: skip
    assert compared.exit_code == 0, compared.output
    assert "with tuned settings: 1 of 2 runs; the others have the defaults" in compared.stderr
    first, second = json.loads(ran.stdout), json.loads(compared.stdout)[0]["result"]
    assert first["per_client"] == second["per_client"]


def test_tune_says_when_there_is_little_to_try(tmp_path: Path, graphs: Path) -> None:
    command = ("tune", "--algorithm", "local", "--graphs", graphs, "--trials", "9", "--seeds", "1", "--rounds", "1")
    done = fedgkd(*command, *SMALL, "local_epochs=1", "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    assert "there are only 2 combinations; all of them are tried" in done.stderr
    found = json.loads(done.stdout)
    assert (found["complete"], found["pruned"], found["params"].keys()) == (2, 0, {"lr"})


def test_ablate(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ("ablate", "distillation", *SYNTHETIC, "--clients", "2", "--seeds", "1", "--rounds", "1", *SMALL)
    done = fedgkd(*command, "static_models=2", "--out", out)
    assert done.exit_code == 0, done.output
    assert names(out) == [
        "synthetic-2-non-overlapping-fedgkd-distillation=dynamic-seed0",
        "synthetic-2-non-overlapping-fedgkd-distillation=static-seed0",
        "synthetic-2-non-overlapping-local-seed0",
    ]
    assert json.loads((out / "study.json").read_text())["values"] == ["dynamic", "static"]
    for value in ("dynamic", "static", "Local"):
        assert value in done.stdout
    assert "holds the runs of another grid" in fedgkd("ablate", "tau", "--out", out).stderr


def test_the_study_of_the_relation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedgkd.experiments import ablate

    features = {f"h-{m}": {"task_feature": "h", "relation": "centred", "nodes_per_class": m} for m in (1, 2)}
    study = replace(ablate.STUDIES["relation"], variants={"default": {}, **features}, beside=("fedpub", "fedavg"))
    monkeypatch.setitem(ablate.STUDIES, "relation", study)
    out = tmp_path / "out"
    command = ("ablate", "relation", *SYNTHETIC, "--clients", "3", "--seeds", "2", "--set", "hidden=8", "threads=1")
    command += ("select=midpoint",)  # which has metrics of its own to report
    done = fedgkd(*command, "--rounds", "20", "--out", out)
    assert done.exit_code == 0, done.output
    assert "Relation: Synthetic, non-overlapping, 3 clients" in done.stdout
    again = fedgkd(*command, "--rounds", "20", "--out", out, "--json")
    assert again.stderr.strip() == "finished already: 10 of 10 runs"
    rows = json.loads(again.stdout)
    assert json.loads((out / "study_relation.json").read_text()) == rows
    assert [row["variant"] for row in rows] == ["default", "h-1", "h-2", "FedAvg", "FED-PUB"]
    # m nodes of 5 classes with 8 hidden numbers of 4 bytes; nothing but weights and report; a mean of 8 numbers.
    assert [row["feature_bytes"] for row in rows[1:]] == [160, 320, 0, 32]
    assert rows.pop(3)["quality"] is None
    for row in rows:
        assert row["quality"] == pytest.approx((row["quality_5"] + row["quality_20"]) / 2)
        assert (row["quality_40"], row["seeds"], row["clients"]) == (None, 2, 3)
    plan = fedgkd(*command, "--out", out, "--json", "--dry-run")
    assert "holds a run with rounds = 20, but it is to be 40" in plan.stderr


def test_motivation(tmp_path: Path) -> None:
    command = ("ablate", "motivation", *SYNTHETIC, "--seeds", "1", "--rounds", "3", *SMALL, "--out", tmp_path / "out")
    done = fedgkd(*command)
    assert done.exit_code == 0, done.output
    assert "linear CKA" in done.stdout
    assert json.loads(fedgkd(*command, "--json").stdout)["dataset"] == "synthetic"
    assert "takes no --values, --graphs" in fedgkd(*command, "--jobs", "2").stderr


def test_run_and_resume_log_to_tensorboard(tmp_path: Path, graphs: Path) -> None:
    done = fedgkd("run", "--graphs", graphs, "--rounds", "1", *SMALL, "--log", "tensorboard", "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert list((tmp_path / "run" / "tensorboard").iterdir())
    assert "no tracker" in fedgkd("resume", tmp_path / "run", "--log", "board").stderr


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("compare --dataset core", "there is no dataset 'core': did you mean 'cora'?"),
        ("compare --algorithms fedgdk", "there is no algorithm 'fedgdk'; did you mean 'fedgkd'?"),
        ("compare --overlapping --clients 7", "multiple of 5, not 7"),
        ("compare --overlapping --partition louvain", "exclude each other"),
        ("compare --partition random", "unknown partition setting 'random'"),
        ("compare --graphs nowhere", "nowhere: no such folder"),
        ("compare --graphs nowhere --clients 5", "--graphs are used as they are"),
        ("tune --algorithm local --dataset cora --graphs x", "--dataset and --graphs exclude each other"),
        ("compare --set tau", "--set takes name=value, not 'tau'"),
        ("compare --set tauu=1", "there is no setting 'tauu'; did you mean 'tau'?"),
        ("compare --configs nowhere", "--configs nowhere: there is no such folder"),
        ("compare --log board", "there is no tracker 'board'"),
        ("compare --rounds 0", "rounds must be at least 1"),
        ("ablate kernels", "there is no study 'kernels'; did you mean 'kernel'?"),
        ("ablate kernel --set kernel=local", "--set kernel: that is what is varied here"),
        ("tune --algorithm fedgdk", "there is no algorithm 'fedgdk'"),
        ("tune --algorithm fedgkd --try tau", "--try takes a setting and its values"),
        ("tune --algorithm fedgkd --try tau=", "--try takes a setting and its values"),
        ("tune --algorithm fedgkd --try tau=warm", "tau must be a finite number, not 'warm'"),
        ("tune --algorithm fedgkd --trials 2 --storage x", "the storage x cannot be used"),
        ("tune --algorithm local --set lr=1 local_epochs=1", "there is nothing to tune about local"),
    ],
)
def test_mistakes_get_one_sentence(command: str, sentence: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = fedgkd(*command.split(), "--out", out)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert done.stderr.startswith("error: ")
    assert not out.exists() or not any(out.iterdir())


def test_folders_and_records_that_are_not_usable(tmp_path: Path, graphs: Path) -> None:
    command = ("compare", "--graphs", graphs, "--algorithms", "local", "--seeds", "1", "--rounds", "1", *SMALL)
    assert "is not empty (graphs)" in fedgkd(*command, "--out", tmp_path).stderr
    out = tmp_path / "out"
    assert fedgkd(*command, "--out", out).exit_code == 0
    (result,) = out.glob("*/result.json")
    assert "is the folder of a single run" in fedgkd(*command, "--out", result.parent).stderr
    result.write_text('{"algorithm": ')
    done = fedgkd(*command, "--out", out)
    assert done.exit_code == 2
    assert "result.json is damaged" in done.stderr
    changed = fedgkd(*command, "--rounds", "2", "--out", out)
    assert "holds a run with rounds = 1, but it is to be 2" in changed.stderr
    os.truncate(out / "grid.json", 5)
    assert "grid.json cannot be read" in fedgkd(*command, "--out", out).stderr
