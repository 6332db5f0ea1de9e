"""Tuning: what is tried, what decides, what is left behind by a kill, what is written."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from fedgkd.algorithms import METHODS
from fedgkd.data.federation import Federation
from fedgkd.data.own import write_federation
from fedgkd.errors import RunError, SettingError
from fedgkd.experiments import tune as tune_module
from fedgkd.experiments.config import make_config
from fedgkd.experiments.grid import Given, Method, make_cells, own_graphs, partitioned, tuned_file
from fedgkd.experiments.locks import locked
from fedgkd.experiments.proposals import combinations
from fedgkd.experiments.search_spaces import PAPER, SEARCH_SPACES, TRAINING, Space, search_space
from fedgkd.experiments.tune import Tuning, Watch, check_files, tune, winner_file, write_winner
from tests.graphs import planted_federation

_FAKETIME = list(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
SPACE: Space = {"lr": (0.0001, 0.01), "local_epochs": (1, 3), "weight_decay": (0.0, 1e-6, 1e-3)}


def _tuning(folder: Path, trials: int = 4, space: Space = SPACE, algorithm: str = "local", **changes: Any) -> Tuning:
    given = Given(assignments={"hidden": "8", "threads": "1", "rounds": "3"} | changes)
    return Tuning([own_graphs(folder, "label")], algorithm, space, trials, seeds=2, given=given)


def _write(federation: Federation, folder: Path) -> Path:
    write_federation(federation, folder)
    return folder


@pytest.fixture
def graphs(tmp_path: Path) -> Path:
    return _write(planted_federation(2, nodes=40), tmp_path / "graphs")


def _trials(out: Path, tuning: Tuning) -> list[FrozenTrial]:
    return optuna.load_study(study_name=tuning.name, storage=f"sqlite:///{out / 'study.db'}").get_trials()


def _tried(out: Path, tuning: Tuning) -> list[tuple[dict[str, Any], float | None]]:
    return [(t.params, t.value) for t in _trials(out, tuning) if t.state in (TrialState.COMPLETE, TrialState.PRUNED)]


def test_search_spaces_are_made_of_settings_that_exist() -> None:
    assert SEARCH_SPACES.keys() <= METHODS.keys()
    for algorithm in METHODS:
        for name, values in search_space(algorithm).items():
            for value in values:
                assert make_config(("test", {"algorithm": algorithm, name: value})).values()[name] == value
            default = make_config(("test", {"algorithm": algorithm})).values()[name]
            assert default in values, f"the first trial of {algorithm} takes the defaults, so {name} needs {default}"


def test_the_papers_space() -> None:
    assert combinations(PAPER) == 2 * 4 * 5 * 5 * 6 * 2
    assert all(set(values) <= set(PAPER[name]) for name, values in search_space("fedgkd").items())
    assert search_space("mine:Own") == search_space("fedavg") == TRAINING


def test_the_best_mean_validation_accuracy_wins(graphs: Path, tmp_path: Path) -> None:
    tuning = _tuning(graphs, trials=12)
    ended: list[FrozenTrial] = []
    outcome = tune(tuning, tmp_path / "out", watch=Watch(on_end=ended.append))
    assert (outcome.complete + outcome.pruned, outcome.elsewhere) == (12, 0)
    assert len(ended) == 12
    tried = [tuple(trial.params.items()) for trial in ended]
    assert len(set(tried)) == 12, "a space that is small enough is tried out whole"
    assert ended[0].params == {"lr": 0.01, "local_epochs": 3, "weight_decay": 1e-6}, "the defaults come first"
    assert outcome.value == max(t.value for t in ended if t.state == TrialState.COMPLETE and t.value is not None)
    expected = [_run_plainly(config) for config in tuning.configs(outcome.params)]
    assert outcome.value == pytest.approx(np.mean(expected))


def _run_plainly(config: Any) -> float:
    from fedgkd.experiments.federations import build_federation
    from fedgkd.experiments.runner import Run

    run = Run(config, build_federation(config.run), None)
    run.start()
    return float(run.execute()["val_accuracy"])


def test_test_labels_change_nothing(tmp_path: Path) -> None:
    federation = planted_federation(2, nodes=40)
    other = replace(
        federation,
        graphs=tuple(replace(g, y=np.where(g.test_mask, (g.y + 1) % g.num_classes, g.y)) for g in federation.graphs),
    )
    found = []
    for name, which in (("a", federation), ("b", other)):
        tuning = _tuning(_write(which, tmp_path / name / "graphs"), algorithm="fedgkd", space=search_space("fedgkd"))
        outcome = tune(tuning, tmp_path / name / "out")
        found.append((_tried(tmp_path / name / "out", tuning), outcome))
    assert found[0] == found[1]


def test_no_run_of_a_trial_has_a_test_accuracy(graphs: Path, tmp_path: Path) -> None:
    records: list[dict[str, Any]] = []
    tune(_tuning(graphs, trials=1), tmp_path / "out", watch=Watch(on_round=lambda done, record: records.append(record)))
    assert len(records) == 6
    for record in records:
        assert record["selected"]["accuracy"]["test"] is None
        assert record["trained"]["per_client"]["test"] == [None, None]
        assert record["selected"]["accuracy"]["val"] is not None


def test_same_seed_same_trials_and_another_seed_others(graphs: Path, tmp_path: Path) -> None:
    tuning = _tuning(graphs, space=search_space("fedgkd"), algorithm="fedgkd", trials=3)
    for out, seed in (("a", 0), ("b", 0), ("c", 1)):
        tune(replace(tuning, seed=seed), tmp_path / out)
    first, again, other = (_tried(tmp_path / out, tuning) for out in "abc")
    assert first == again
    assert first[0] == other[0]
    assert first[1:] != other[1:]


def test_a_study_that_was_stopped_goes_on_as_it_would_have(graphs: Path, tmp_path: Path) -> None:
    space = search_space("fedgkd")
    tuning = _tuning(graphs, space=space, algorithm="fedgkd", trials=4)
    tune(tuning, tmp_path / "whole")

    def interrupt(ended: int, params: Any) -> None:
        if ended == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(tuning, tmp_path / "stopped", watch=Watch(on_start=interrupt))
    assert len(_tried(tmp_path / "stopped", tuning)) == 2
    outcome = tune(tuning, tmp_path / "stopped")
    assert _tried(tmp_path / "stopped", tuning) == _tried(tmp_path / "whole", tuning)
    assert outcome == tune(tuning, tmp_path / "whole"), "a finished study only says what it found"


def _command(graphs: Path, out: Path, trials: int, rounds: int) -> list[str]:
    what = ["tune", "--algorithm", "local", "--graphs", str(graphs), "--trials", str(trials), "--seeds", "1"]
    how = ["--rounds", str(rounds), "--set", "hidden=8", "threads=1", "patience=0", "--out", str(out)]
    return [sys.executable, "-m", "fedgkd", *what, *how]


def _as_commanded(graphs: Path, trials: int, rounds: int) -> Tuning:
    given = Given(options={"rounds": rounds}, assignments={"hidden": "8", "threads": "1", "patience": "0"})
    return Tuning([own_graphs(graphs, "label")], "local", TRAINING, trials, seeds=1, given=given)


def test_a_killed_process_does_not_hold_its_trial(
    graphs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, tuning = tmp_path / "out", _as_commanded(graphs, trials=2, rounds=600)
    process = subprocess.Popen(_command(graphs, out, 2, 600), stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not _under_way(out, tuning) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    _, said = process.communicate()
    assert _under_way(out, tuning), said
    monkeypatch.setattr(tune_module, "GRACE_SECONDS", 1)  # as if it had happened long enough ago
    outcome = tune(tuning, out)
    assert (outcome.complete, outcome.elsewhere) == (2, 0)
    assert [trial.state.name for trial in _trials(out, tuning)].count("FAIL") == 1


_CLOCK_SET = """
import threading, time
time.sleep = lambda seconds: threading.Event().wait(seconds)  # the one that libfaketime breaks
from fedgkd.cli import main
main()
"""


def _with_clock(offset: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    """The command of ``_command`` where the clock is another than in the processes before."""
    wrong = {"LD_PRELOAD": str(_FAKETIME[0]), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    program = [sys.executable, "-c", _CLOCK_SET, *command[3:]]
    return subprocess.run(program, capture_output=True, text=True, env=os.environ | wrong)


def _start_and_wait(command: list[str], out: Path, tuning: Tuning) -> subprocess.Popen[str]:
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not _under_way(out, tuning) and time.monotonic() < deadline:
        time.sleep(0.05)
    return process


@pytest.mark.skipif(not _FAKETIME, reason="libfaketime is not installed")
def test_a_clock_set_back_loses_no_trial_of_a_killed_process(graphs: Path, tmp_path: Path) -> None:
    out, tuning = tmp_path / "out", _as_commanded(graphs, trials=2, rounds=300)
    command = _command(graphs, out, 2, 300)
    process = _start_and_wait(command, out, tuning)
    process.kill()
    process.communicate()
    done = _with_clock("-2h", command)
    assert done.returncode == 0, done.stderr
    states = [trial.state.name for trial in _trials(out, tuning)]
    assert (states.count("COMPLETE") + states.count("PRUNED"), states.count("FAIL")) == (2, 1)


@pytest.mark.skipif(not _FAKETIME, reason="libfaketime is not installed")
def test_a_process_whose_clock_is_ahead_leaves_the_living_alone(graphs: Path, tmp_path: Path) -> None:
    out, tuning = tmp_path / "out", _as_commanded(graphs, trials=3, rounds=300)
    command = _command(graphs, out, 3, 300)
    first = _start_and_wait(command, out, tuning)
    second = _with_clock("+2h", command)
    _, said = first.communicate(timeout=300)
    assert (first.returncode, second.returncode) == (0, 0), said + second.stderr
    states = [trial.state.name for trial in _trials(out, tuning)]
    assert len(states) == 3
    assert set(states) <= {"COMPLETE", "PRUNED"}


def _under_way(out: Path, tuning: Tuning) -> bool:
    """Whether a trial has got through its first rounds and is not at its end."""
    try:
        with locked(out, wait=True):  # who opens the database may be the one that makes its tables
            trials = _trials(out, tuning)
    except KeyError:  # no study yet
        return False
    return any(trial.state == TrialState.RUNNING and trial.intermediate_values for trial in trials)


def test_processes_share_the_trials(graphs: Path, tmp_path: Path) -> None:
    out, tuning = tmp_path / "out", _as_commanded(graphs, trials=8, rounds=2)
    processes = [
        subprocess.Popen(_command(graphs, out, 8, 2), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    tried = [tuple(params.items()) for params, _ in _tried(out, tuning)]
    assert len(tried) == len(set(tried)) == 8


def test_a_hopeless_trial_is_pruned(graphs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_module, "UNPRUNED_TRIALS", 1)
    tuning = _tuning(graphs, space={"lr": (0.01, 1e-9)}, rounds="25", patience="0")
    rounds: list[int] = []
    outcome = tune(tuning, tmp_path / "out", watch=Watch(on_round=lambda done, record: rounds.append(record["round"])))
    assert (outcome.complete, outcome.pruned, outcome.params) == (1, 1, {"lr": 0.01})
    assert rounds[50:] == list(range(1, 16)), "looked at in round 15, more than ten after its best"


def test_a_trial_that_is_behind_and_rises_is_not_pruned(
    graphs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune_module, "UNPRUNED_TRIALS", 1)
    tuning = replace(_tuning(graphs, space={"lr": (0.01, 0.003)}, rounds="25", patience="0"), seeds=1)
    accuracies: list[float] = []
    watch = Watch(on_round=lambda done, record: accuracies.append(record["selected"]["accuracy"]["val"]))
    outcome = tune(tuning, tmp_path / "out", watch=watch)
    fast, slow = accuracies[:25], accuracies[25:]
    assert all(behind < ahead for behind, ahead in zip(slow, fast, strict=True))
    assert (outcome.complete, outcome.pruned) == (2, 0)


def test_no_combination_is_tried_twice(graphs: Path, tmp_path: Path) -> None:
    space = {"lr": (0.01, 0.02, 0.03), "local_epochs": (1, 2, 3)}
    tuning = _tuning(graphs, trials=6, space=space)
    tune(tuning, tmp_path / "out")
    tune(replace(tuning, trials=9), tmp_path / "out")
    tried = [tuple(params.values()) for params, _ in _tried(tmp_path / "out", tuning)]
    assert sorted(tried) == list(itertools.product(*space.values()))


def test_the_winner_is_a_file_for_run_and_compare(graphs: Path, tmp_path: Path) -> None:
    tuning = _tuning(graphs, trials=2)
    outcome = tune(tuning, tmp_path)
    file = winner_file(tuning, tmp_path)
    write_winner(tuning, outcome, file, "fedgkd tune --this")
    assert file == tmp_path / "planted-2-own-graphs-local.toml"
    assert tuned_file(tmp_path, tuning.places[0], Method("local")) == file
    lines = file.read_text().splitlines()
    assert lines[0] == (
        f"# Tuned by fedgkd. Trials: 2, of which pruned: 0. Mean validation accuracy: {outcome.value:.4f} (runs: 2)."
    )
    assert lines[1] == "# fedgkd tune --this"
    values = tomllib.loads(file.read_text())
    assert values == {"algorithm": "local", "graphs": str(graphs), "hidden": 8, "rounds": 3, **outcome.params}
    (cell,) = make_cells(tmp_path, tuning.places, [Method("local")], [5], Given(configs=tmp_path))
    assert {name: cell.config.values()[name] for name in values} == values
    check_files(tmp_path, file)
    file.write_text("lr = 1\n")
    with pytest.raises(RunError, match="was not written by fedgkd tune"):
        check_files(tmp_path, file)


def test_several_numbers_of_clients_make_a_file_for_any(tmp_path: Path) -> None:
    places = [partitioned("synthetic", clients, "non-overlapping") for clients in (2, 3)]
    given = Given(
        options={"synthetic": "num_nodes=60 num_communities=3"},
        assignments={"hidden": "8", "threads": "1", "rounds": "1"},
    )
    tuning = Tuning(places, "fedavg", {"lr": (0.01,)}, 5, seeds=1, given=given)
    assert [config.run.clients for config in tuning.configs({})] == [2, 3]
    file = winner_file(tuning, tmp_path)
    write_winner(tuning, tune(tuning, tmp_path), file, "")
    assert file.name == "synthetic-non-overlapping-fedavg.toml"
    assert "clients" not in tomllib.loads(file.read_text())


def test_seeds_that_no_table_reports(graphs: Path) -> None:
    tuning = replace(_tuning(graphs), first_seed=3)
    assert [config.run.seed for config in tuning.configs({})] == [3, 4]
    assert tuning.conditions() != _tuning(graphs).conditions()


def test_values_are_of_the_settings_type(graphs: Path) -> None:
    tuning = _tuning(graphs, algorithm="fedgkd", space={"x0_scale": ("none", "1"), "tau_per_client": ("yes", "no")})
    assert tuning.space == {"x0_scale": (None, 1.0), "tau_per_client": (True, False)}


@pytest.mark.parametrize(
    ("space", "sentence"),
    [
        ({}, "nothing to tune about local"),
        ({"seed": (1, 2)}, "seed cannot be tuned"),
        ({"lrr": (1, 2)}, "no setting 'lrr'; did you mean 'lr'"),
        ({"lr": (1, -2)}, "lr must be above 0"),
        ({"hidden": (1, 2)}, "--set hidden: that is what is varied here"),
    ],
)
def test_spaces_that_cannot_be(graphs: Path, space: Space, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        _tuning(graphs, space=space)


def test_a_study_is_not_shared_under_other_conditions(graphs: Path, tmp_path: Path) -> None:
    tune(_tuning(graphs, trials=1), tmp_path)
    tune(_tuning(graphs, trials=1, threads="2"), tmp_path)
    for other in (_tuning(graphs, rounds="4"), _tuning(graphs, space={"lr": (0.1, 0.2)})):
        with pytest.raises(RunError, match="was begun with another search space, number of seeds or settings"):
            tune(other, tmp_path)


def test_storages_that_cannot_be_used(graphs: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="the storage nonsense cannot be used"):
        tune(_tuning(graphs), tmp_path, "nonsense")
    (tmp_path / "study.db").write_text("this is no database, but long enough to be looked at " * 20)
    with pytest.raises(SettingError, match=r"cannot be used: .*file is not a database"):
        tune(_tuning(graphs), tmp_path)


def test_clients_without_validation_nodes_cannot_be_tuned_by(tmp_path: Path) -> None:
    federation = planted_federation(2, nodes=30)
    graphs = tuple(replace(g, val_mask=np.zeros_like(g.val_mask)) for g in federation.graphs)
    folder = _write(replace(federation, graphs=graphs), tmp_path / "graphs")
    with pytest.raises(SettingError, match="no validation nodes to tune by"):
        tune(_tuning(folder), tmp_path / "out")
