"""The paper's studies as grids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedgkd.algorithms.fedgkd import PAPER
from fedgkd.errors import SettingError
from fedgkd.experiments.ablate import CLIENTS, STUDIES, find_study, write_study
from fedgkd.experiments.grid import Given, make_cells, partitioned


@pytest.mark.parametrize("name", [name for name in STUDIES if name not in ("preset", "relation")])
def test_every_study_is_a_grid_with_one_setting_varied(name: str, tmp_path: Path) -> None:
    study = find_study(name)
    cells = make_cells(Path(), [partitioned("cora", 10, "non-overlapping")], study.methods, [0], Given())
    varied = [cell for cell in cells if cell.config.run.algorithm == "fedgkd"]
    assert tuple(cell.config.values()[study.setting] for cell in varied) == study.values
    # The centred kernel has a τ that suits it.
    own = (study.setting, "tau") if name == "kernel" else (study.setting,)
    others = [{k: v for k, v in cell.config.values().items() if k not in own} for cell in varied]
    assert all(other == others[0] for other in others)
    assert tuple(cell.config.run.algorithm for cell in cells if cell not in varied) == study.beside
    write_study(name, tmp_path)
    written = json.loads((tmp_path / "study.json").read_text())
    assert written == {"study": name, "setting": study.setting, "values": list(study.values)}


def test_the_preset_changes_what_the_paper_says(tmp_path: Path) -> None:
    place = partitioned("cora", 10, "non-overlapping")
    ours, paper, beside = (cell.config for cell in make_cells(Path(), [place], STUDIES["preset"].methods, [0], Given()))
    assert (ours.method.preset, paper.method.preset, beside.run.algorithm) == ("default", "paper", "fedpub")
    assert {name: paper.values()[name] for name in PAPER} == PAPER


def test_the_relation_has_variants_of_several_settings(tmp_path: Path) -> None:
    study = STUDIES["relation"]
    given = Given(options=study.options)
    cells = make_cells(Path(), [partitioned("cora", 20, "non-overlapping")], study.methods, [0], given)
    assert len({cell.name for cell in cells}) == len(study.variants) + 1
    assert {(cell.config.run.rounds, cell.config.run.patience) for cell in cells} == {(40, 0)}
    found = dict(zip((*study.variants, "fedpub"), (cell.config.values() for cell in cells), strict=True))
    plain = {name: value for name, value in found["default"].items() if name != "preset"}
    for name, changes in study.variants.items():
        own = {key: value for key, value in changes.items() if key != "preset"}
        expected = PAPER | own if "preset" in changes else own
        different = {key: found[name][key] for key, value in plain.items() if found[name][key] != value}
        assert different == {key: value for key, value in expected.items() if value != plain[key]}
    write_study("relation", tmp_path)
    written = json.loads((tmp_path / "study.json").read_text())
    assert (written["study"], written["setting"]) == ("relation", "variant")
    assert written["values"] == list(study.variants) == list(written["variants"].values())
    assert written["variants"]["fedgkd"] == "default"
    assert written["variants"]["fedgkd-task_feature=x_h-relation=correlation"] == "x-h"


def test_a_study_of_some_of_its_values() -> None:
    assert STUDIES["tau"].only(["0.5", "0.05"]).values == (0.5, 0.05)
    some = STUDIES["relation"].only(["paper"])
    assert [method.label for method in some.methods] == ["fedgkd-preset=paper", "fedpub"]
    with pytest.raises(SettingError, match="the study has no value 'papr'; did you mean 'paper'"):
        STUDIES["relation"].only(["papr"])
    with pytest.raises(SettingError, match=r"the study has no value '7'; it has 0.05, 0.1, 0.25"):
        STUDIES["tau"].only(["7"])


def test_the_papers_values() -> None:
    assert STUDIES["gamma"].values == (0.001, 0.75, 1.5, 2.5, 5.0)
    assert STUDIES["tau_s"].values == (1.0, 3.0, 5.0, 7.0, 9.0)
    assert STUDIES["tau"].values == (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
    assert set(STUDIES["kernel"].values) == {
        *("exponential", "centred", "local", "square", "effective_resistance", "uniform")
    }
    assert STUDIES["kernel"].variants["centred"] == {"kernel": "centred", "tau": 1.0}
    assert STUDIES["kernel"].beside == ("fedpub",)
    assert CLIENTS["non-overlapping"] == (5, 10, 20)
    assert CLIENTS["overlapping"] == (10, 30, 50)


def test_unknown_studies() -> None:
    with pytest.raises(SettingError, match="no study 'kernels'; did you mean 'kernel'"):
        find_study("kernels")
    with pytest.raises(SettingError, match=r"no study 'xyzzy'; known are preset, kernel, .*, motivation"):
        find_study("xyzzy")
