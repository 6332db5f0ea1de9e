"""Runs of a grid: resumed, failed, side by side, killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fedgkd.algorithms import FedAvg
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.data.own import write_federation
from fedgkd.experiments.directory import RunDirectory
from fedgkd.experiments.federations import build_federation
from fedgkd.experiments.grid import Cell, Given, Method, State, make_cells, own_graphs, state
from fedgkd.experiments.runner import resume
from fedgkd.experiments.workers import News, Surroundings, read_failure, run_cells
from tests.graphs import planted_federation

SMALL = Given(assignments={"hidden": "8", "threads": "1", "rounds": "4", "checkpoint_share": "1"})


class Breaks(FedAvg):
    """An algorithm with a bug."""

    def client_step(self, clients: ClientBatch, download: Tensors) -> Tensors:
        if clients.round == 3:
            raise ZeroDivisionError("one over nothing")
        return super().client_step(clients, download)


class Dies(FedAvg):
    """An algorithm whose process is killed, as by a system that is out of memory."""

    def client_step(self, clients: ClientBatch, download: Tensors) -> Tensors:
        if clients.round == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().client_step(clients, download)


@pytest.fixture
def graphs(tmp_path: Path) -> Path:
    write_federation(planted_federation(3, nodes=30), tmp_path / "graphs")
    return tmp_path / "graphs"


def _cells(graphs: Path, out: Path, algorithms: Sequence[str], seeds: int = 1) -> list[Cell]:
    place = own_graphs(graphs, "label")
    return make_cells(out, [place], [Method(name) for name in algorithms], range(seeds), SMALL)


def _run(cells: Sequence[Cell], jobs: int = 1) -> list[News]:
    told: list[News] = []
    run_cells(cells, Surroundings(), jobs, told.append)
    return told


def _assert_equal(first: Cell, second: Cell) -> None:
    """Everything but the times is the same, bit for bit."""
    one, two = (RunDirectory(cell.folder).read_result() for cell in (first, second))
    assert {**one, "seconds": 0} == {**two, "seconds": 0}
    for client in range(3):
        name = f"models/client-{client}.safetensors"
        assert (first.folder / name).read_bytes() == (second.folder / name).read_bytes()
    with np.load(first.folder / "relations.npz") as ours, np.load(second.folder / "relations.npz") as theirs:
        for matrix in ("R", "S", "Q"):
            np.testing.assert_array_equal(ours[matrix], theirs[matrix])


def test_news_of_a_run(graphs: Path, tmp_path: Path) -> None:
    (cell,) = _cells(graphs, tmp_path / "out", ["local"])
    told = _run([cell])
    assert [news.event for news in told] == ["started", "round", "round", "round", "round", "finished"]
    assert told[-1].value == RunDirectory(cell.folder).read_result()
    assert state(cell) == State.FINISHED


def test_two_processes_give_what_one_gives(graphs: Path, tmp_path: Path) -> None:
    alone = _cells(graphs, tmp_path / "alone", ["fedgkd", "fedavg"], seeds=2)
    together = _cells(graphs, tmp_path / "together", ["fedgkd", "fedavg"], seeds=2)
    _run(alone)
    told = _run(together, jobs=2)
    assert sorted(news.cell.name for news in told if news.event == "finished") == sorted(c.name for c in together)
    for first, second in zip(alone, together, strict=True):
        _assert_equal(first, second)


def test_an_unfinished_run_goes_on_from_its_checkpoint(graphs: Path, tmp_path: Path) -> None:
    (whole,) = _cells(graphs, tmp_path / "whole", ["fedgkd"])
    (stopped,) = _cells(graphs, tmp_path / "stopped", ["fedgkd"])
    _run([whole])
    directory = RunDirectory(stopped.folder)
    directory.create(stopped.config)
    run = resume(directory, build_federation(stopped.config.run))
    run.step()
    run.step()
    assert state(stopped) == State.UNFINISHED
    assert [news.value["round"] for news in _run([stopped]) if news.event == "round"] == [3, 4]
    _assert_equal(whole, stopped)


def test_a_failure_is_written_down_and_the_others_go_on(graphs: Path, tmp_path: Path) -> None:
    cells = _cells(graphs, tmp_path / "out", [f"{__name__}:Breaks", "local"])
    told = _run(cells)
    assert [state(cell) for cell in cells] == [State.FAILED, State.FINISHED]
    failed = json.loads((cells[0].folder / "failed.json").read_text())
    assert failed["error"] == "ZeroDivisionError: one over nothing"
    assert "client_step" in failed["traceback"]
    assert [news.value for news in told if news.event == "failed"] == [failed["error"]] == [read_failure(cells[0])]


def test_a_failed_run_is_tried_again(graphs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = _cells(graphs, tmp_path / "whole", ["fedavg"])
    (cell,) = _cells(graphs, tmp_path / "out", [f"{__name__}:Breaks"])
    _run([whole])
    _run([cell])
    monkeypatch.setattr(Breaks, "client_step", FedAvg.client_step)
    assert [news.value["round"] for news in _run([cell]) if news.event == "round"] == [3, 4]
    assert not (cell.folder / "failed.json").exists()
    assert (cell.folder / "models/client-0.safetensors").exists()
    mended, expected = (RunDirectory(c.folder).read_result() for c in (cell, whole))
    assert mended["per_client"] == expected["per_client"]


def test_data_that_cannot_be_had_is_a_failure_with_a_config(tmp_path: Path) -> None:
    (tmp_path / "empty.npz").touch()
    from fedgkd.experiments.grid import partitioned

    place = partitioned(str(tmp_path / "empty.npz"), 2, "louvain")
    (cell,) = make_cells(tmp_path / "out", [place], [Method("local")], [0], SMALL)
    _run([cell])
    assert state(cell) == State.FAILED
    assert "empty.npz" in read_failure(cell)
    assert RunDirectory(cell.folder).load_config() == cell.config


def test_settings_may_still_change_before_the_first_round(graphs: Path, tmp_path: Path) -> None:
    (cell,) = _cells(graphs, tmp_path / "out", ["local"])
    place = own_graphs(graphs, "label")
    (other,) = make_cells(tmp_path / "out", [place], [Method("local")], [0], Given(options={"rounds": 9}))
    RunDirectory(other.folder).create(other.config)
    _run([cell])
    assert RunDirectory(cell.folder).read_result()["rounds"] == 4


def test_a_worker_that_dies_takes_only_its_run_with_it(graphs: Path, tmp_path: Path) -> None:
    cells = _cells(graphs, tmp_path / "out", [f"{__name__}:Dies", "local", "fedavg"])
    told = _run(cells, jobs=2)
    assert [state(cell) for cell in cells] == [State.FAILED, State.FINISHED, State.FINISHED]
    assert read_failure(cells[0]) == "the process was killed, perhaps because memory ran out; try fewer --jobs"
    assert sum(news.event == "failed" for news in told) == 1


def test_workers_end_when_their_parent_gives_up(graphs: Path, tmp_path: Path) -> None:
    cells = _cells(graphs, tmp_path / "out", ["local", "fedavg"])

    def interrupt(news: News) -> None:
        if news.event == "round":
            raise KeyboardInterrupt

    import multiprocessing

    with pytest.raises(KeyboardInterrupt):
        run_cells(cells, Surroundings(), 2, interrupt)
    assert multiprocessing.active_children() == []
    assert not any((cell.folder / "failed.json").exists() for cell in cells)


def test_a_reason_that_is_only_half_written(graphs: Path, tmp_path: Path) -> None:
    from fedgkd.errors import RunError

    (cell,) = _cells(graphs, tmp_path / "out", ["local"])
    assert read_failure(cell) == "it is not finished"
    cell.folder.mkdir(parents=True)
    (cell.folder / "failed.json").write_text('{"err')
    with pytest.raises(RunError, match=r"failed\.json cannot be read"):
        read_failure(cell)
