"""Killed at whatever moment, or out of room at whatever write: the folder goes on to the same files and figures."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
import time
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


def check_refusal(done: dict[str, Any], folder: Path, when: object) -> None:
    assert done["code"] == 2, (when, done)
    *_, last = done["said"].splitlines()
    assert re.search(rf"error: cannot write .*{folder}.*: (No space left on device|File too large)$", last), (
        when,
        last,
    )
    assert "Traceback" not in done["said"], (when, done)
    assert not list(folder.rglob(".*")), (when, "left over")


def test_a_disk_that_is_full_from_any_step_on(
    fedgkd: Killer, settings: Sequence[str], expected: tuple[int, Any], tmp_path: Path
) -> None:
    steps, whole = expected
    folder = tmp_path / "run"
    for step in range(1, steps + 1, 4):
        done = fedgkd("run", *settings, "--out", folder, root=folder, full=step)
        if done["code"]:  # towards the end, only what needs no room is left to do
            check_refusal(done, folder, step)
        again = go_on(fedgkd, settings, folder)
        assert again["code"] == 0, (step, again)
        check(folder, whole, step)


@pytest.mark.parametrize("limit", [300, 2500, 4000])
def test_files_that_may_not_grow(
    limit: int, fedgkd: Killer, settings: Sequence[str], expected: tuple[int, Any], tmp_path: Path
) -> None:
    """Here the system itself refuses, in the middle of a write."""
    folder = tmp_path / "run"
    done = fedgkd("run", *settings, "--out", folder, root=folder, limit=limit)
    check_refusal(done, folder, limit)
    assert go_on(fedgkd, settings, folder)["code"] == 0
    check(folder, expected[1], limit)


@pytest.mark.parametrize("verb", ["partition", "collect", "predict"])
def test_other_commands_that_are_killed(
    verb: str, fedgkd: Killer, graphs: Path, settings: Sequence[str], tmp_path: Path
) -> None:
    """The same command again writes the same, beside nothing that the killed one left."""
    run, out = tmp_path / "run", tmp_path / "out"
    assert fedgkd("run", *settings, "--out", run, root=tmp_path / "none")["code"] == 0
    graph, model = next(graphs.glob("*.npz")), run / "models" / "client-0.safetensors"
    command: tuple[str | Path, ...] = {
        "partition": ("partition", graph, "--clients", "2", "--out", out / "parts"),
        "collect": ("collect", run, "--out", out / "runs.jsonl"),
        "predict": ("predict", "--model", model, "--graph", graph, "--out", out / "classes.csv"),
    }[verb]
    done = fedgkd(*command, root=out)
    assert done["code"] == 0, done
    whole = sorted(content(out))
    for again in (False, True):  # onto nothing, and onto what is there
        for step in range(1, done["steps"] + 1, max(1, done["steps"] // 4)):
            if not again:
                shutil.rmtree(out)
            if fedgkd(*command, root=out, kill=step)["code"] == KILLED:
                assert fedgkd(*command, root=out)["code"] == 0, step
            assert sorted(content(out)) == whole, step


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_comparison_whose_folder_is_removed(jobs: int, graphs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "grid"
    settings = ("--graphs", graphs, "--rounds", "100000", "--set", *TINY, "patience=0")
    command = ["compare", *settings, "--algorithms", "fedavg", "local", "--seeds", "1", "--jobs", jobs, "--out", folder]
    start = [sys.executable, "-c", "from fedgkd.cli import main; main()", *map(str, command)]
    with subprocess.Popen(start, stderr=subprocess.PIPE, text=True) as process:
        while not list(folder.glob("*/checkpoint/state-0.json")) and process.poll() is None:
            time.sleep(0.05)
        folder.rename(tmp_path / "moved")
        shutil.rmtree(tmp_path / "moved", ignore_errors=True)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 2, said
    assert f"error: {folder}, or a file in it, was removed while fedgkd was at work there" in said
    assert "Traceback" not in said
    assert not folder.exists()
