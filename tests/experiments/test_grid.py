"""Which runs a grid has, with which settings, and what has become of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedgkd.data.own import write_federation
from fedgkd.errors import DataError, RunError, SettingError
from fedgkd.experiments.directory import RunDirectory
from fedgkd.experiments.grid import (
    Cell,
    Given,
    Method,
    Place,
    State,
    claimed,
    make_cells,
    own_graphs,
    partitioned,
    state,
    tuned_file,
)
from tests.graphs import planted_federation

CORA = partitioned("cora", 10, "non-overlapping")


def test_the_grid_is_every_method_in_every_place_with_every_seed() -> None:
    places = [CORA, partitioned("cora", 5, "non-overlapping")]
    cells = make_cells(Path("out"), places, [Method("fedgkd"), Method("local")], range(2), Given())
    assert [cell.folder for cell in cells] == [
        Path("out") / f"cora-{clients}-non-overlapping-{algorithm}-seed{seed}"
        for clients in (10, 5)
        for seed in (0, 1)
        for algorithm in ("fedgkd", "local")
    ]
    assert cells[3].config.run.clients == 10
    assert cells[3].config.run.seed == 1
    assert cells[3].config.run.algorithm == "local"
    assert cells[3].group == cells[1].group == "cora-10-non-overlapping-local"


def test_a_method_that_a_study_changes_has_it_in_its_name() -> None:
    (cell,) = make_cells(Path(), [CORA], [Method("fedgkd", {"tau": 0.25})], [0], Given())
    assert cell.name == "cora-10-non-overlapping-fedgkd-tau=0.25-seed0"
    assert cell.config.method.tau == 0.25


def test_an_assignment_goes_to_the_algorithms_that_have_the_setting() -> None:
    given = Given(options={"rounds": 7}, assignments={"tau_s": "9", "lr": "0.5"})
    gkd, local = make_cells(Path(), [CORA], [Method("fedgkd"), Method("local")], [0], given)
    assert (gkd.config.method.tau_s, gkd.config.method.lr, gkd.config.run.rounds) == (9.0, 0.5, 7)
    assert (local.config.method.lr, local.config.run.rounds) == (0.5, 7)


@pytest.mark.parametrize(
    ("assignments", "changes", "sentence"),
    [
        ({"taus": "1"}, {}, "no setting 'taus'; did you mean 'tau_s'"),
        ({"eps_1": "1"}, {}, "eps_1 is a setting of gcfl, gcfl_plus, not of fedgkd"),
        ({"seed": "1"}, {}, "--set seed: the runs differ in it"),
        ({"tau": "1"}, {"tau": 0.5}, "--set tau: that is what is varied here"),
        ({"lr": "-1"}, {}, "lr must be above 0"),
    ],
)
def test_assignments_that_cannot_be_meant(
    assignments: dict[str, str], changes: dict[str, float], sentence: str
) -> None:
    with pytest.raises(SettingError, match=sentence):
        make_cells(Path(), [CORA], [Method("fedgkd", changes)], [0], Given(assignments=assignments))


def test_places_that_cannot_be() -> None:
    with pytest.raises(DataError, match="did you mean 'cora'"):
        partitioned("core", 10, "non-overlapping")
    with pytest.raises(SettingError, match="multiple of 5, not 7"):
        partitioned("cora", 7, "overlapping")
    with pytest.raises(SettingError, match="unknown partition setting"):
        partitioned("cora", 7, "random")


def test_own_graphs_say_who_they_are(tmp_path: Path) -> None:
    write_federation(planted_federation(3, nodes=30), tmp_path / "mine")
    place = own_graphs(tmp_path / "mine", "label")
    assert (place.dataset, place.clients, place.setting) == ("planted", 3, "own-graphs")
    (cell,) = make_cells(tmp_path, [place], [Method("local")], [0], Given())
    assert cell.name == "planted-3-own-graphs-local-seed0"
    assert cell.config.run.graphs == str(tmp_path / "mine")


def test_a_path_is_called_by_its_last_part_and_kept_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "papers.npz").touch()
    monkeypatch.chdir(tmp_path)
    place = partitioned("papers.npz", 2, "louvain")
    assert (place.dataset, place.settings["dataset"]) == ("papers", str(tmp_path / "papers.npz"))


def test_graphs_of_one_name_are_not_mixed_up(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "g.npz").touch()
    places = [partitioned(str(tmp_path / folder / "g.npz"), 2, "louvain") for folder in ("a", "b")]
    with pytest.raises(SettingError, match="two different runs would both be called g-2-louvain-local-seed0"):
        make_cells(tmp_path, places, [Method("local")], [0], Given())


def test_the_most_specific_tuned_file_counts_and_options_win_over_it(tmp_path: Path) -> None:
    files = {"fedgkd": 0.1, "cora-non-overlapping-fedgkd": 0.2, "cora-10-non-overlapping-fedgkd": 0.3}
    for name, lr in files.items():
        (tmp_path / f"{name}.toml").write_text(f'dataset = "citeseer"\nseed = 9\nlr = {lr}\nrounds = 3\n')
    places = [CORA, Place("cora", 5, "non-overlapping", {"clients": 5}), Place("citeseer", 5, "louvain", {})]
    cells = make_cells(tmp_path, places, [Method("fedgkd")], [0], Given(configs=tmp_path, options={"rounds": 4}))
    assert [cell.config.method.lr for cell in cells] == [0.3, 0.2, 0.1]
    assert {cell.config.run.rounds for cell in cells} == {4}
    assert (cells[0].config.run.dataset, cells[0].config.run.seed) == ("cora", 0)
    assert tuned_file(tmp_path, CORA, Method("local")) is None
    with pytest.raises(SettingError, match="has no file for any of these runs"):
        make_cells(tmp_path, [CORA], [Method("local")], [0], Given(configs=tmp_path))


def test_a_tuned_file_with_a_mistake_is_named(tmp_path: Path) -> None:
    (tmp_path / "local.toml").write_text("learning_rate = 1\n")
    with pytest.raises(SettingError, match=r"local\.toml: there is no setting 'learning_rate'"):
        make_cells(tmp_path, [CORA], [Method("local")], [0], Given(configs=tmp_path))


def _cell(out: Path, **assignments: str) -> Cell:
    (cell,) = make_cells(out, [CORA], [Method("local")], [0], Given(assignments=assignments))
    return cell


def test_states(tmp_path: Path) -> None:
    cell = _cell(tmp_path)
    directory = RunDirectory(cell.folder)
    assert state(cell) == State.NEW
    directory.create(cell.config)
    assert state(cell) == State.NEW
    directory.metrics_file.touch()
    assert state(cell) == State.UNFINISHED
    (cell.folder / "failed.json").write_text('{"error": "x"}')
    assert state(cell) == State.FAILED
    directory.result_file.write_text("{}")
    assert state(cell) == State.FINISHED
    directory.result_file.write_text("{")
    with pytest.raises(RunError, match=r"result\.json is damaged"):
        state(cell)


def test_a_begun_run_with_other_settings_is_not_mixed_in(tmp_path: Path) -> None:
    cell = _cell(tmp_path)
    RunDirectory(cell.folder).create(cell.config)
    RunDirectory(cell.folder).metrics_file.touch()
    assert state(_cell(tmp_path, threads="2", checkpoint_every="5")) == State.UNFINISHED
    with pytest.raises(RunError, match=r"holds a run with rounds = 100, but it is to be 50"):
        state(_cell(tmp_path, rounds="50"))
    RunDirectory(cell.folder).config_file.write_text("rounds = ")
    with pytest.raises(SettingError, match="is not a TOML file"):
        state(cell)


def test_a_folder_is_held_by_one_and_remembers_its_commands(tmp_path: Path) -> None:
    out = tmp_path / "new" / "grid"
    with claimed(out, "comparison", "first"), pytest.raises(RunError, match="another fedgkd is at work"):
        claimed(out, "comparison", "second").__enter__()
    for command in ("second", "first"):
        with claimed(out, "comparison", command):
            pass
    note = json.loads((out / "grid.json").read_text())
    assert note == {"kind": "comparison", "commands": ["first", "second"]}
    with pytest.raises(RunError, match=r"holds the runs of another grid \(comparison\)"):
        claimed(out, "tau", "third").__enter__()
    (out / "grid.json").write_text('{"kind": ')
    with pytest.raises(RunError, match=r"grid\.json cannot be read"):
        claimed(out, "comparison", "third").__enter__()


def test_folders_that_hold_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(RunError, match=r"is not empty \(thesis.tex\)"):
        claimed(tmp_path, "comparison", "").__enter__()
    with pytest.raises(RunError, match="is a file"):
        claimed(tmp_path / "thesis.tex", "comparison", "").__enter__()
    (tmp_path / "config.toml").touch()
    with pytest.raises(RunError, match="is the folder of a single run"):
        claimed(tmp_path, "comparison", "").__enter__()
