"""The examples run as they are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedgkd import ServerRound
from fedgkd.models import Network

EXAMPLES = Path(__file__).parents[1] / "examples"

needs_data = pytest.mark.skipif(
    "FEDGKD_DATA" not in os.environ, reason="the examples train on Cora: set FEDGKD_DATA to a folder with its files"
)


def run_example(name: str, folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == [], "without `out` nothing is written"
    return done.stdout.splitlines()


@needs_data
def test_quickstart(tmp_path: Path) -> None:
    accuracy, probabilities = run_example("quickstart.py", tmp_path)
    found = re.fullmatch(r"mean test accuracy of the personal models: (\d+\.\d+)%", accuracy)
    assert found is not None
    assert float(found[1]) > 75
    numbers = re.fullmatch(r"client 3, class probabilities of its first node: \[(.*)\]", probabilities)
    assert numbers is not None
    assert sum(map(float, numbers[1].split())) == pytest.approx(1.0, abs=0.01)


@needs_data
def test_new_algorithm(tmp_path: Path) -> None:
    lines = [line.split() for line in run_example("new_algorithm.py", tmp_path)]
    assert [name for name, _ in lines] == ["fedavg", "__main__:KeepAShare"]
    assert all(float(accuracy.removesuffix("%")) > 70 for _, accuracy in lines)


def test_known_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    from known_groups import KnownGroups, KnownGroupsSettings

    algorithm = KnownGroups(KnownGroupsSettings(group_size=2), Network("gcn", 2, 1, 1, 2), num_clients=5, seed=0)
    first, *_, absent, alone = algorithm.server_step({}, ServerRound(1, (0, 1, 3, 4))).weights.tolist()
    assert first == pytest.approx([0.4, 0.4, 0.1, 0.1])
    assert absent == pytest.approx([1 / 9, 1 / 9, 2 / 3, 1 / 9]), "without a mate the others' shares grow"
    assert alone == pytest.approx([1 / 9, 1 / 9, 1 / 9, 2 / 3])


def test_a_new_algorithm_takes_under_forty_lines() -> None:
    assert len((EXAMPLES / "new_algorithm.py").read_text().splitlines()) < 40


def test_the_quickstart_takes_five_lines() -> None:
    code = (EXAMPLES / "quickstart.py").read_text().split('"""')[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= 5
