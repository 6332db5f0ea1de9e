"""Whatever the moment at which a command is killed, its folder goes on: same files, same figures, nothing left over."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedgkd.data.own import write_federation
from fedgkd.experiments.verify import verify
from tests.cli.killing import Killer
from tests.graphs import planted_federation

TINY = ("hidden=4", "threads=1", "local_epochs=1", "checkpoint_share=1")
KILLED = -9


@pytest.fixture(scope="module")
def fedgkd() -> Iterator[Killer]:
    killer = Killer()
    yield killer
    killer.close()


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("federation") / "graphs"
    write_federation(planted_federation(2, nodes=20), folder)
    return folder


@pytest.fixture(scope="module")
def settings(graphs: Path) -> Sequence[str]:
    return ("--graphs", str(graphs), "--rounds", "2", "--set", *TINY)


@pytest.fixture(scope="module")
def expected(fedgkd: Killer, settings: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Any]:
    """Steps of a run that nobody kills, and what is in its folder in the end."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    done = fedgkd("run", *settings, "--out", folder, root=folder)
    assert done["code"] == 0, done["said"]
    return done["steps"], content(folder)


def content(folder: Path) -> dict[str, Any]:
    """All files, less what tells the time."""
    return {
        str(path.relative_to(folder)): _timeless(path.read_bytes(), path.name)
        for path in folder.rglob("*")
        if not path.is_dir()
    } | {str(path.relative_to(folder)): None for path in folder.rglob("*") if path.is_dir()}


def _timeless(data: bytes, name: str) -> Any:
    if name.startswith("tables."):  # which say how long it took
        return None
    if name == "SHA256SUMS":  # verified beside
        return [line[64:] for line in data.decode().splitlines()]
    if name == "result.json":
        return {key: value for key, value in json.loads(data).items() if key != "seconds"}
    if name == "metrics.jsonl":
        rows = [json.loads(line) for line in data.splitlines()]
        return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]
    return data


def go_on(fedgkd: Killer, settings: Sequence[str], folder: Path, kill: int = 0) -> dict[str, Any]:
    """What a user does after a kill: the same command, and what it says is to be done if that is another one."""
    done = fedgkd("run", *settings, "--out", folder, root=folder, kill=kill)
    if done["code"] == 2:
        assert re.search(r"already holds a run, which (is finished|can go on with: fedgkd resume)", done["said"]), done
        done = fedgkd("resume", folder, root=folder, kill=kill)
    return done


def check(folder: Path, expected: Any, when: object) -> None:
    assert content(folder) == expected, when
    assert not verify(folder).problems, when
    shutil.rmtree(folder)


def test_a_run_that_is_killed_before_any_step(
    fedgkd: Killer, settings: Sequence[str], expected: tuple[int, Any], tmp_path: Path
) -> None:
    steps, whole = expected
    folder = tmp_path / "run"
    for step in range(1, steps + 1):
        assert fedgkd("run", *settings, "--out", folder, root=folder, kill=step)["code"] == KILLED
        done = go_on(fedgkd, settings, folder)
        assert done["code"] == 0, (step, done)
        check(folder, whole, step)


def test_a_run_that_is_killed_again_and_again(
    fedgkd: Killer, settings: Sequence[str], expected: tuple[int, Any], tmp_path: Path
) -> None:
    """Twice in a row at least; a later kill comes while what the earlier ones left is taken up."""
    steps, whole = expected
    folder, draw = tmp_path / "run", random.Random(0)
    for _ in range(30):
        kills = [draw.randint(1, steps)]
        fedgkd("run", *settings, "--out", folder, root=folder, kill=kills[0])
        for _ in range(2):
            kills.append(draw.randint(1, 40))
            done = go_on(fedgkd, settings, folder, kill=kills[-1])
            assert done["code"] in (0, KILLED), (kills, done)
        done = go_on(fedgkd, settings, folder)
        assert done["code"] == 0, (kills, done)
        check(folder, whole, kills)


def test_a_comparison_that_is_killed(fedgkd: Killer, settings: Sequence[str], tmp_path: Path) -> None:
    command = ("compare", *settings, "--algorithms", "fedgkd", "local", "--seeds", "1", "--out")
    folder = tmp_path / "grid"
    done = fedgkd(*command, folder, root=folder)
    assert done["code"] == 0, done["said"]
    whole = content(folder)
    shutil.rmtree(folder)
    for step in sorted(random.Random(1).sample(range(1, done["steps"] + 1), 12)):
        assert fedgkd(*command, folder, root=folder, kill=step)["code"] == KILLED
        again = fedgkd(*command, folder, root=folder)
        assert again["code"] == 0, (step, again)
        check(folder, whole, step)
