"""TensorBoard and MLflow get every round, the result and the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedgkd.data.own import write_federation
from fedgkd.errors import RunError, SettingError
from fedgkd.experiments.grid import Cell, Given, Method, make_cells, own_graphs
from fedgkd.experiments.runner import Events
from fedgkd.experiments.tracking import Tracker, open_tracker, prepare_tracker, scalars
from fedgkd.experiments.workers import Surroundings, run_cells
from tests.graphs import planted_federation


def _cell(tmp_path: Path) -> Cell:
    write_federation(planted_federation(2, nodes=30), tmp_path / "graphs")
    given = Given(assignments={"hidden": "8", "threads": "1", "rounds": "3"})
    (cell,) = make_cells(tmp_path / "out", [own_graphs(tmp_path / "graphs", "label")], [Method("fedgkd")], [0], given)
    return cell


def _run(cell: Cell, log: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rounds and result of a cell that is logged."""
    told: list[Any] = []
    run_cells([cell], Surroundings(log=log), 1, told.append)
    rounds = [news.value for news in told if news.event == "round"]
    assert told[-1].event == "finished", told[-1].value
    return rounds, told[-1].value


def test_the_numbers_of_a_record() -> None:
    record = {"round": 2, "loss": 0.5, "present": [0, 1], "best": None, "trained": {"accuracy": {"val": 0.25}}}
    assert scalars(record) == {"round": 2, "loss": 0.5, "trained/accuracy/val": 0.25}


def test_a_tracker_comes_before_other_events() -> None:
    told: list[str] = []
    tracker = Tracker(on_round=lambda record: told.append("tracker"))
    events = tracker.added_to(Events(lambda record: told.append("screen"), lambda sentence: told.append(sentence)))
    events.on_round({})
    events.on_warning("warning")
    assert told == ["tracker", "screen", "warning"]


def test_without_a_tracker_nothing_happens(tmp_path: Path) -> None:
    prepare_tracker(None)
    with open_tracker(None, tmp_path / "run", _cell(tmp_path).config) as tracker:
        tracker.on_round({})
        tracker.on_result({})
    assert not (tmp_path / "run").exists()


def test_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    prepare_tracker("tensorboard")
    cell = _cell(tmp_path)
    rounds, result = _run(cell, "tensorboard")
    written = EventAccumulator(str(cell.folder / "tensorboard"))
    written.Reload()
    values = [(event.step, event.value) for event in written.Scalars("selected/accuracy/val")]
    assert values == [(r["round"], pytest.approx(r["selected"]["accuracy"]["val"])) for r in rounds]
    (final,) = written.Scalars("result/test_accuracy")
    assert final.value == pytest.approx(result["test_accuracy"])
    settings = written.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert b"tau_s" in settings


@pytest.fixture
def mlflow_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    from mlflow import MlflowClient

    return MlflowClient


# Of MLflow itself, with the newest SQLAlchemy.
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_mlflow_and_a_run_that_goes_on(tmp_path: Path, mlflow_store: Any) -> None:
    prepare_tracker("mlflow")
    cell = _cell(tmp_path)
    with open_tracker("mlflow", cell.folder, cell.config) as tracker:
        tracker.on_round({"round": 1, "loss": 9.0})  # and then it is killed
    rounds, result = _run(cell, "mlflow")
    client = mlflow_store()
    (run,) = client.search_runs([client.get_experiment_by_name("fedgkd").experiment_id])
    assert (run.info.run_name, run.info.status) == (cell.name, "FINISHED")
    assert run.data.params["tau_s"] == "3.0"
    history = client.get_metric_history(run.info.run_id, "selected/accuracy/val")
    assert [(m.step, m.value) for m in history] == [(r["round"], r["selected"]["accuracy"]["val"]) for r in rounds]
    assert run.data.metrics["result/test_accuracy"] == result["test_accuracy"]


def test_a_store_that_refuses_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://nowhere")
    with pytest.raises(RunError, match="MLflow's store cannot be used"):
        prepare_tracker("mlflow")


def test_unknown_and_missing_trackers(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="no tracker 'tensorbord'; did you mean 'tensorboard'"):
        prepare_tracker("tensorbord")
    with pytest.raises(SettingError, match="no tracker 'x'; known: tensorboard, mlflow"):
        prepare_tracker("x")
    monkeypatch.setattr("fedgkd.experiments.tracking.find_spec", lambda name: None)
    with pytest.raises(SettingError, match=r"pip install 'fedgkd\[mlflow\]'"):
        prepare_tracker("mlflow")
