"""The paper's studies as grids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedgkd.errors import SettingError
from fedgkd.experiments.ablate import CLIENTS, STUDIES, find_study, write_study
from fedgkd.experiments.grid import Given, make_cells, partitioned


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_is_a_grid_with_one_setting_varied(name: str, tmp_path: Path) -> None:
    study = find_study(name)
    cells = make_cells(Path(), [partitioned("cora", 10, "non-overlapping")], study.methods, [0], Given())
    varied = [cell for cell in cells if cell.config.run.algorithm == "fedgkd"]
    assert tuple(cell.config.values()[study.setting] for cell in varied) == study.values
    others = [{k: v for k, v in cell.config.values().items() if k != study.setting} for cell in varied]
    assert all(other == others[0] for other in others)
    assert tuple(cell.config.run.algorithm for cell in cells if cell not in varied) == study.beside
    write_study(name, tmp_path)
    written = json.loads((tmp_path / "study.json").read_text())
    assert written == {"study": name, "setting": study.setting, "values": list(study.values)}


def test_the_papers_values() -> None:
    assert STUDIES["gamma"].values == (0.001, 0.75, 1.5, 2.5, 5.0)
    assert STUDIES["tau_s"].values == (1.0, 3.0, 5.0, 7.0, 9.0)
    assert STUDIES["tau"].values == (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
    assert set(STUDIES["kernel"].values) == {"exponential", "local", "square", "effective_resistance", "uniform"}
    assert STUDIES["kernel"].beside == ("fedpub",)
    assert CLIENTS["non-overlapping"] == (5, 10, 20)
    assert CLIENTS["overlapping"] == (10, 30, 50)


def test_unknown_studies() -> None:
    with pytest.raises(SettingError, match="no study 'kernels'; did you mean 'kernel'"):
        find_study("kernels")
    with pytest.raises(SettingError, match=r"no study 'xyzzy'; known are kernel, .*, motivation"):
        find_study("xyzzy")
