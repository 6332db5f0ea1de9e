"""Checkpoints of a run: damaged, and forged with the digest that belongs to them."""

from __future__ import annotations

import json
import random
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedgkd.experiments.checkpoint import _digest
from fedgkd.experiments.config import make_config
from fedgkd.experiments.directory import RunDirectory
from fedgkd.experiments.runner import Run, resume
from tests.fuzz.core import Target
from tests.fuzz.values import change_tree
from tests.graphs import planted_federation

SETTINGS = {"algorithm": "fedgkd", "hidden": 8, "threads": 1, "rounds": 4, "checkpoint_share": 1.0, "local_epochs": 1}


@lru_cache
def _stopped() -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files of a run that was stopped after three rounds, and what it would have come to."""
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory(Path(folder))
        config = make_config(("fuzz", SETTINGS))
        run = Run(config, planted_federation(2, nodes=20), directory)
        directory.create(config)
        run.start()
        for _ in range(3):
            run.step()
        found = [path for path in Path(folder).rglob("*") if path.is_file() and path.name != ".lock"]
        files = {str(path.relative_to(folder)): path.read_bytes() for path in found}
    whole = Run(config, planted_federation(2, nodes=20), None)
    whole.start()
    for _ in range(4):
        whole.step()
    return files, _without_time(whole.result())


def _without_time(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name != "seconds"}


def forge(draw: random.Random, content: dict[str, Any]) -> None:
    """Change a description, and give it the digest that it would have."""
    name = draw.choice(sorted(name for name in content["files"] if "checkpoint/" in name and name.endswith(".json")))
    said = json.loads(content["files"][name])
    said.pop("sha256")
    change_tree(draw, said)
    data = content["files"].get(name.replace(".json", ".safetensors"), b"")
    content["files"][name] = json.dumps(said | {"sha256": _digest(said, [data])}).encode()
    content["forged"] = True


def drop(draw: random.Random, content: dict[str, Any]) -> None:
    name = draw.choice(sorted(content["files"]))
    if name != "config.toml" and not name.endswith(".json"):
        content["files"][name] = content["files"][name][: draw.randrange(len(content["files"][name]) + 1)]


class Checkpoint(Target):
    """``fedgkd resume`` of a run that was stopped."""

    name = "checkpoint"
    mutators = (forge, forge, drop)
    names_file = False

    def make(self, draw: random.Random) -> dict[str, Any]:
        return {"files": dict(_stopped()[0]), "forged": False}

    def write(self, content: dict[str, Any], folder: Path) -> Path:
        for name, data in content["files"].items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        return folder

    def use(self, given: Path) -> dict[str, Any]:
        run = resume(RunDirectory(given), planted_federation(2, nodes=20))
        return run.execute()

    def wrong(self, given: Path, content: Any, result: dict[str, Any]) -> str | None:
        if content["forged"]:
            return None  # whoever can write the digest can write the rest
        ours, expected = _without_time(result), _stopped()[1]
        return None if json.dumps(ours) == json.dumps(expected) else "another result than without the damage"
