"""How long a grid will take, and what that is based on."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedgkd.data.own import write_federation
from fedgkd.experiments import estimate as estimate_module
from fedgkd.experiments.directory import RunDirectory
from fedgkd.experiments.estimate import Estimate, estimate, total
from fedgkd.experiments.grid import Cell, Given, Method, State, make_cells, own_graphs, partitioned, state
from fedgkd.experiments.workers import Surroundings, run_cells
from tests.graphs import planted_federation

SMALL = Given(assignments={"hidden": "8", "threads": "1", "rounds": "50"})


@pytest.fixture
def cells(tmp_path: Path) -> list[Cell]:
    write_federation(planted_federation(2, nodes=30), tmp_path / "graphs")
    place = own_graphs(tmp_path / "graphs", "label")
    return make_cells(tmp_path / "out", [place], [Method("local"), Method("fedavg")], range(2), SMALL)


def test_from_finished_runs_where_there_are_any_and_measured_rounds_elsewhere(cells: list[Cell]) -> None:
    run_cells(cells[:1], Surroundings(), 1, lambda news: None)
    took = RunDirectory(cells[0].folder).read_result()["seconds"]
    states = {cell: state(cell) for cell in cells}
    probed: list[str] = []
    found = estimate(states, None, probed.append)
    assert found["planted-2-own-graphs-local"].seconds == took
    assert found["planted-2-own-graphs-local"].basis == "mean of 1 finished"
    assert probed == ["planted-2-own-graphs-fedavg"]
    assert found["planted-2-own-graphs-fedavg"].seconds > 0
    assert found["planted-2-own-graphs-fedavg"].basis == "3 measured rounds"
    assert not cells[1].folder.exists(), "measuring leaves nothing behind"
    seconds, unknown = total(states, found, jobs=2)
    assert seconds == pytest.approx((took + 2 * found["planted-2-own-graphs-fedavg"].seconds) / 2)
    assert unknown == []


def test_what_there_is_no_time_to_measure_is_said(cells: list[Cell], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate_module, "PROBE_BUDGET", -1.0)
    states = dict.fromkeys(cells, State.NEW)
    found = estimate(states, None)
    assert found == {}
    assert total(states, found, jobs=1) == (0.0, cells)


def test_what_there_is_no_time_to_measure_is_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [partitioned("synthetic", clients, "non-overlapping") for clients in (2, 3, 4)]
    methods = [Method("local"), Method("fedavg"), Method("fedgkd")]
    took = {("local", 2): 1.0, ("fedavg", 2): 2.0, ("fedgkd", 2): 4.0, ("local", 3): 3.0, ("local", 4): 5.0}
    clock = iter(range(100))

    def measure(cell: Cell, data_dir: Path | None) -> Estimate:
        return Estimate(took[cell.config.run.algorithm, cell.config.run.clients], "measured")

    monkeypatch.setattr(estimate_module, "PROBE_BUDGET", 5.0)
    monkeypatch.setattr(estimate_module.time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(estimate_module, "probe", measure)
    cells = make_cells(tmp_path, places, methods, range(2), SMALL)
    found = estimate(dict.fromkeys(cells, State.NEW), None)
    assert found["synthetic-3-non-overlapping-fedavg"] == Estimate(6.0, "guessed from the others")
    assert found["synthetic-4-non-overlapping-fedgkd"] == Estimate(20.0, "guessed from the others")
    assert found["synthetic-4-non-overlapping-local"] == Estimate(5.0, "measured")


def test_a_run_that_will_fail_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty.npz").touch()
    place = partitioned(str(tmp_path / "empty.npz"), 2, "louvain")
    cells = make_cells(tmp_path / "out", [place], [Method("local")], [0], SMALL)
    found = estimate(dict.fromkeys(cells, State.NEW), None)
    assert "will fail: " in found["empty-2-louvain-local"].basis


def test_so_does_an_algorithm_of_the_users_own(cells: list[Cell], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(cell: Cell, data_dir: Path | None) -> Estimate:
        raise ZeroDivisionError("one over nothing")

    monkeypatch.setattr(estimate_module, "probe", fails)
    found = estimate(dict.fromkeys(cells, State.NEW), None)
    assert {by.basis for by in found.values()} == {"will fail: ZeroDivisionError: one over nothing"}
