"""What runs leave behind: folders of finished runs, collected lines, and notes beside grids."""

from __future__ import annotations

import json
import math
import random
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from fedgkd.experiments.grid import claimed
from fedgkd.reporting import load_records, load_rounds
from fedgkd.reporting.compact import collect, read_collected
from fedgkd.reporting.records import Records, read_records
from fedgkd.reporting.report import read_report
from tests.fuzz.core import Target, command, fresh
from tests.fuzz.values import change_tree, to_json
from tests.reporting.written import write_run, write_study

SHARES = ("test_accuracy", "val_accuracy", "test_accuracy_weighted", "test_accuracy_received", "test_macro_f1")


def change(draw: random.Random, files: dict[str, Any]) -> None:
    change_tree(draw, files["result.json"], raw=True)


def change_round(draw: random.Random, files: dict[str, Any]) -> None:
    change_tree(draw, files["metrics.jsonl"], raw=True)


def change_clients(draw: random.Random, files: dict[str, Any]) -> None:
    change_tree(draw, files["clients.json"], raw=True)


def change_study(draw: random.Random, files: dict[str, Any]) -> None:
    change_tree(draw, files["study.json"], raw=True)


def strange_accuracy(draw: random.Random, files: dict[str, Any]) -> None:
    files["result.json"][draw.choice(SHARES)] = draw.choice([7.5, -3, "0.5", True, [0.5], 1.0001, -0.01, 10**20])


def strange_rounds(draw: random.Random, files: dict[str, Any]) -> None:
    rounds = files["metrics.jsonl"]
    kind, place = draw.randrange(4), draw.randrange(max(1, len(rounds)))
    if kind == 0:
        rounds[place:place] = rounds[place : place + 1]
    elif kind == 1:
        del rounds[place : place + 1]
    elif kind == 2:
        rounds.reverse()
    else:
        rounds.append({})


def strange_matrices(draw: random.Random, files: dict[str, Any]) -> None:
    matrices = files["relations.npz"]
    name = draw.choice("RSQ")
    was = matrices.get(name, np.zeros((4, 3, 3), np.float32))
    kinds = [
        was[:-1],
        was[:, :2],
        was.astype(np.float64),
        was.astype("U5"),
        was + np.float32(np.inf),
        was * 9,
        was.T,
        was[None],
    ]
    matrices[name] = draw.choice([*kinds, was.astype(complex), np.float32(1), was > 0])
    if draw.random() < 0.2:
        del matrices[name]


class Record(Target):
    """A finished run, and a study around it."""

    name = "record"
    mutators = (change, change_round, change_clients, change_study, strange_accuracy, strange_rounds, strange_matrices)

    def make(self, draw: random.Random) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            run = write_run(Path(folder) / "a", labels=[[5, 5]] * 3, relations="RSQ", seed=draw.randrange(9))
            write_study(Path(folder) / "study", "tau", [0.1, 0.5])
            with np.load(run / "relations.npz") as arrays:
                matrices = dict(arrays)
            return {
                "result.json": json.loads((run / "result.json").read_text()),
                "clients.json": json.loads((run / "clients.json").read_text()),
                "metrics.jsonl": [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()],
                "config.toml": (run / "config.toml").read_text(),
                "study.json": json.loads((Path(folder) / "study" / "study.json").read_text()),
                "relations.npz": matrices,
            }

    def write(self, content: dict[str, Any], folder: Path) -> Path:
        run = folder / "run"
        run.mkdir()
        options: dict[str, Any] = {"encoding": "utf-8", "errors": "surrogatepass"}
        (folder / "study.json").write_text(to_json(content["study.json"]), **options)
        (run / "config.toml").write_text(content["config.toml"], **options)
        for name in ("result.json", "clients.json"):
            (run / name).write_text(to_json(content[name]), **options)
        (run / "metrics.jsonl").write_text("".join(f"{to_json(one)}\n" for one in content["metrics.jsonl"]), **options)
        np.savez_compressed(run / "relations.npz", **content["relations.npz"])
        return folder

    def use(self, given: Path) -> Records:
        found = read_records(given)
        load_records(given)
        load_rounds(given)
        for run in found.runs:
            run.relations()
            run.clients()
        command("tables", str(given))
        collect([given], fresh(given.parent / "out") / "all.jsonl")
        read_report(given.parent / "out" / "all.jsonl")
        return found

    def wrong(self, given: Path, content: Any, result: Records) -> str | None:
        (run,) = result.runs
        said = json.loads((given / "run" / "result.json").read_text())
        for name in SHARES:
            if not (said[name] is None or _share(said[name])):
                return f"{name} is {said[name]}"
        for name in ("clients", "rounds", "seed", "best_round", "bytes_up", "bytes_down"):
            if type(said[name]) is not int or not 0 <= said[name] < 2**63:
                return f"{name} is {said[name]}"
        if not all(
            isinstance(said[name], str) and said[name].isprintable() for name in ("algorithm", "dataset", "setting")
        ):
            return "names that cannot be printed"
        if not len(said["per_client"]) == len(said["client_names"]) == said["clients"]:
            return "lists of other lengths"
        if not all(share is None or _share(share) for share in said["per_client"]):
            return "accuracies of clients that cannot be"
        rounds = run.rounds
        if rounds["round"].tolist() != list(range(1, said["rounds"] + 1)):
            return "rounds that are not in their order"
        for name, column in rounds.items():
            known = column[~np.isnan(column)]
            if ("accuracy" in name or "f1" in name) and ((known < 0) | (known > 1)).any():
                return f"{name} beyond 0 and 1 in a round"
        shape = (said["rounds"], said["clients"], said["clients"])
        if any(matrix.shape != shape or np.isinf(matrix).any() for matrix in run.relations().values()):
            return "matrices of another shape, or infinite"
        clients = run.clients()
        if clients and (clients.labels.sum(axis=1) > clients.nodes).any():
            return "more labels than nodes"
        return None


def _share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e-5 <= value <= 1 + 1e-5


def change_line(draw: random.Random, lines: list[Any]) -> None:
    change_tree(draw, lines, raw=True)


def strange_share(draw: random.Random, lines: list[Any]) -> None:
    if isinstance(lines[-1], dict) and isinstance(lines[-1].get("per_client"), str):
        shares = lines[-1]["per_client"].split(" ")
        shares[0] = draw.choice(
            ["3/2", "-1/2", "1/0", "0.5", "1_0/20", "٣/٤", "", "nan", "1e0", "9" * 5000, " ", "1/2/3", "+1/2"]
        )
        lines[-1]["per_client"] = draw.choice([" ", "  ", "\t", ","]).join(shares)


def same_line(draw: random.Random, lines: list[Any]) -> None:
    lines.append(draw.choice(lines))


class CollectedLines(Target):
    """A file of ``fedgkd collect``."""

    name = "collected"
    mutators = (change_line, strange_share, same_line)

    def make(self, draw: random.Random) -> list[Any]:
        with tempfile.TemporaryDirectory() as folder:
            write_run(Path(folder) / "a", relations="RSQ", seed=draw.randrange(3), tau=0.3)
            write_run(Path(folder) / "b", "fedavg", seed=draw.randrange(3))
            collect([Path(folder)], Path(folder) / "all.jsonl")
            return [json.loads(line) for line in (Path(folder) / "all.jsonl").read_text().splitlines()]

    def write(self, content: list[Any], folder: Path) -> Path:
        path = folder / "all.jsonl"
        path.write_text("".join(f"{to_json(line)}\n" for line in content), encoding="utf-8", errors="surrogatepass")
        return path

    def use(self, given: Path) -> Records:
        found = read_collected(given)
        command("tables", str(given))
        command("tables", str(given), "--format", "csv")
        return found

    def wrong(self, given: Path, content: Any, result: Records) -> str | None:
        lines = [json.loads(line) for line in given.read_text().splitlines()]
        runs = [line for place, line in enumerate(lines) if place or "defaults" not in line]
        if len(runs) != len(result.runs):
            return "more or fewer runs than lines"
        for line, run in zip(runs, result.runs, strict=True):
            shares = [None if text == "-" else Fraction(text) for text in line["per_client"].split(" ")]
            if any(share is not None and not 0 <= share <= 1 for share in shares) or len(shares) != line["clients"]:
                return "accuracies of clients that cannot be"
            if not all(line[name] is None or _share(line[name]) for name in SHARES):
                return "accuracies that cannot be"
            known = [share for share in shares if share is not None]
            if (
                known
                and line["test_accuracy"]
                and not math.isclose(float(sum(known) / len(known)), line["test_accuracy"], abs_tol=2e-4)
            ):
                return "a mean that is not that of the clients"
            if any(run.result[name] != line[name] for name in ("algorithm", "dataset", "seed", "rounds", "bytes_up")):
                return "other figures"
        return None


def change_note(draw: random.Random, note: Any) -> None:
    change_tree(draw, note, raw=True)


class Grid(Target):
    """``grid.json``, which says what a folder of runs is."""

    name = "grid"
    mutators = (change_note,)

    def make(self, draw: random.Random) -> Any:
        return {"kind": "comparison", "commands": ["fedgkd compare --out x", "fedgkd compare --out x --seeds 3"]}

    def write(self, content: Any, folder: Path) -> Path:
        (folder / "grid.json").write_text(to_json(content), encoding="utf-8", errors="surrogatepass")
        return folder

    def use(self, given: Path) -> Any:
        with claimed(given, "comparison", "fedgkd compare --out y"):
            return json.loads((given / "grid.json").read_text())

    def wrong(self, given: Path, content: Any, result: Any) -> str | None:
        if result["kind"] != "comparison" or not all(isinstance(text, str) for text in result["commands"]):
            return "another grid"
        return None if result["commands"][-1] == "fedgkd compare --out y" else "the command is not noted"
