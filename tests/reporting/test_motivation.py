"""The motivating study read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedgkd.errors import RunError
from fedgkd.reporting.records import load_records, read_records
from tests.reporting.written import write_motivation


def test_it_is_found(tmp_path: Path) -> None:
    write_motivation(tmp_path / "motivation")
    (study,) = read_records(tmp_path).motivations
    assert study.dataset == "cora"
    assert study.similarity == {"same": [0.97, 0.99], "flipped": [0.9, 0.94]}
    assert study.relations["x_h"]["flipped"] == [0.1, 0.3]
    assert study.pictures["flipped"].shape == (20, 2)


def test_it_is_no_run(tmp_path: Path) -> None:
    write_motivation(tmp_path / "motivation")
    with pytest.raises(RunError, match="holds no finished run, only a motivating study"):
        load_records(tmp_path)


def test_damaged(tmp_path: Path) -> None:
    write_motivation(tmp_path / "motivation")
    file = tmp_path / "motivation" / "motivation.json"
    text = file.read_text()
    file.write_text("{\n")
    with pytest.raises(RunError, match=r"motivation\.json, line 2, is not JSON"):
        read_records(tmp_path)
    file.write_text("{}")
    with pytest.raises(RunError, match="cannot be read"):
        read_records(tmp_path)
    file.write_text(text)
    (tmp_path / "motivation" / "motivation.npz").unlink()
    with pytest.raises(RunError, match="cannot be read"):
        read_records(tmp_path)
