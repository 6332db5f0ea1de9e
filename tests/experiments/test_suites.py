"""Named collections of federations."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedgkd.cli import app
from fedgkd.experiments.grid import Given, Method, make_cells
from fedgkd.experiments.suites import SUITES, suite


@pytest.mark.parametrize("name", SUITES)
def test_every_federation_is_a_run_of_its_own(name: str, tmp_path: Path) -> None:
    places = suite(name)
    cells = make_cells(tmp_path, places, [Method("fedgkd"), Method("fedavg")], [3, 4], Given())
    assert len({cell.name for cell in cells}) == 4 * len(SUITES[name])


def test_unlike_has_few_labels_conventions_and_natural_federations(tmp_path: Path) -> None:
    cells = make_cells(tmp_path, suite("unlike"), [Method("local")], [0], Given())
    runs = {cell.name: cell.config.run for cell in cells}
    few = runs["citeseer-4-conventions-20-labels-20-shards-local-seed0"]
    assert (few.dataset, few.clients, few.partition, few.concepts, few.train_per_client) == (
        ("citeseer", 20, "shards", 4, 20)
    )
    parts = runs["citation-2-percent-labels-15-non-overlapping-local-seed0"]
    assert (parts.clients, parts.train_ratio, parts.val_ratio) == (15, 0.02, 0.05)
    assert runs["twitch-tasks-21-non-overlapping-local-seed0"].clients == 21


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--suite", "unlik"), "there is no suite 'unlik'; known are unlike"),
        (("--suite", "unlike", "--dataset", "cora"), "--suite names whole federations"),
        (("--suite", "unlike", "--concepts", "2"), "--suite names whole federations"),
    ],
)
def test_mistakes_are_one_sentence(args: tuple[str, ...], message: str, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["compare", "--out", str(tmp_path / "out"), *args])
    assert found.exit_code == 2
    assert message in found.stderr
    assert not (tmp_path / "out").exists()


def test_compare_takes_conventions_few_labels_and_a_first_seed(tmp_path: Path) -> None:
    tiny = ["--dataset", "synthetic", "--synthetic", "num_nodes=120", "num_classes=3", "num_features=8"]
    unlike = ["--clients", "4", "--concepts", "2", "--train-per-client", "3", "--seeds", "2", "--first-seed", "5"]
    small = ["--algorithms", "local", "fedgkd", "--rounds", "2", "--set", "hidden=4", "threads=1"]
    found = CliRunner().invoke(app, ["compare", "--out", str(tmp_path), *tiny, *unlike, *small])
    assert found.exit_code == 0, found.output
    runs = sorted(path.name for path in tmp_path.iterdir() if path.is_dir())
    assert runs == [f"synthetic-4-non-overlapping-{name}-seed{seed}" for name in ("fedgkd", "local") for seed in (5, 6)]
    config = (tmp_path / runs[0] / "config.toml").read_text()
    assert "concepts = 2" in config
    assert "train_per_client = 3" in config
