"""A grid of runs: which they are, and what has become of each.

Every cell is an ordinary run folder, ``<dataset>-<clients>-<setting>-<algorithm>-seed<k>``. A run that failed leaves
``failed.json`` with the reason in its folder; ``grid.json`` beside the folders names the commands that made them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from fedgkd.atomic import atomic_write_text
from fedgkd.data.datasets import DATASETS, count_members, find_dataset
from fedgkd.data.own import read_federation
from fedgkd.data.partition import check_clients
from fedgkd.errors import RunError, SettingError
from fedgkd.experiments.config import Config, RunSettings, find_algorithm, make_config, read_config_file
from fedgkd.experiments.directory import RunDirectory
from fedgkd.experiments.locks import Lock, locked
from fedgkd.parsing import read_json

Values = Mapping[str, Any]

FAILED_FILE = "failed.json"
GRID_FILE = "grid.json"

COORDINATES = ("algorithm", "dataset", "graphs", "clients", "partition", "seed")
"""Settings by which the cells of a grid differ."""

IMMATERIAL = ("threads", "device", "checkpoint_every", "checkpoint_share")
"""Settings that say how a machine does a run; it is the same run whatever they are."""


@dataclass(frozen=True)
class Place:
    """Where the graphs of some cells come from: in names for people and files, and as settings of a run."""

    dataset: str
    clients: int
    setting: str
    settings: Values


@dataclass(frozen=True)
class Method:
    """What is run in some cells: an algorithm, and what a study changes about it."""

    algorithm: str
    changes: Values = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.algorithm.rpartition(":")[2].lower()

    @property
    def label(self) -> str:
        return "-".join([self.name, *(f"{name}={value}" for name, value in self.changes.items())])


@dataclass(frozen=True)
class Given:
    """Settings that hold for all cells.

    Args:
        configs: Folder of tuned settings, see :func:`tuned_file`.
        options: Settings by option; they win over the tuned ones.
        assignments: Settings by ``--set``, each for the algorithms that have it; they win over the options.
        threads: CPU threads of a run where nothing else decides it.
    """

    configs: Path | None = None
    options: Values = field(default_factory=dict)
    assignments: Values = field(default_factory=dict)
    threads: int = 0


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    folder: Path
    config: Config

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def group(self) -> str:
        """What the cells that differ only by their seed have in common."""
        return self.name.rpartition("-seed")[0]


class State(StrEnum):
    """What has become of a cell."""

    NEW = "new"
    UNFINISHED = "unfinished"
    FAILED = "failed"
    FINISHED = "finished"


def partitioned(dataset: str, clients: int, partition: str) -> Place:
    """A dataset, or the path of a user's graph, divided among clients."""
    check_clients(clients, partition, count_members(dataset))
    name, place = dataset, dataset
    if dataset not in DATASETS:
        path = Path(dataset).resolve()
        if not path.exists():
            find_dataset(dataset)
        name, place = path.name if path.is_dir() else path.stem, str(path)
    return Place(name, clients, partition, {"dataset": place, "clients": clients, "partition": partition})


def own_graphs(folder: Path, label: str) -> Place:
    """A folder with one graph per client."""
    federation = read_federation(folder, label=label)
    return Place(federation.dataset, federation.num_clients, federation.setting, {"graphs": str(folder.resolve())})


def make_cells(
    out: Path, places: Sequence[Place], methods: Sequence[Method], seeds: Iterable[int], given: Given
) -> list[Cell]:
    """Every method in every place with every seed; cells with the same federation stand together.

    Raises:
        SettingError: If a setting is unknown or out of range, or two cells would have one name.
    """
    _check_assignments(given.assignments, methods)
    cells: dict[str, Cell] = {}
    for place in places:
        for seed in seeds:
            for method in methods:
                name = f"{place.dataset}-{place.clients}-{place.setting}-{method.label}-seed{seed}"
                cell = Cell(out / name, _config(place, method, seed, given))
                if cells.setdefault(name, cell).config != cell.config:
                    raise SettingError(f"two different runs would both be called {name}; rename one of the graphs")
    if given.configs is not None and not any(tuned_file(given.configs, p, m) for p in places for m in methods):
        raise SettingError(
            f"--configs {given.configs} has no file for any of these runs; files there are called "
            "<dataset>-<clients>-<setting>-<algorithm>.toml, <dataset>-<setting>-<algorithm>.toml or <algorithm>.toml"
        )
    return list(cells.values())


def tuned_file(configs: Path, place: Place, method: Method) -> Path | None:
    """The most specific file of settings for an algorithm in a place."""
    setting = f"{place.setting}-{method.name}"
    names = (f"{place.dataset}-{place.clients}-{setting}", f"{place.dataset}-{setting}", method.name)
    return next((file for name in names if (file := configs / f"{name}.toml").exists()), None)


def _config(place: Place, method: Method, seed: int, given: Given) -> Config:
    sources: list[tuple[str, Values]] = [("--jobs", {"threads": given.threads})]
    file = None if given.configs is None else tuned_file(given.configs, place, method)
    if file is not None:
        tuned = read_config_file(file)
        sources.append((str(file), {name: value for name, value in tuned.items() if name not in COORDINATES}))
    has = _setting_names(method.algorithm)
    return make_config(
        *sources,
        ("command line", given.options),
        ("--set", {name: value for name, value in given.assignments.items() if name in has}),
        ("settings to vary", method.changes),
        ("grid", {**place.settings, "algorithm": method.algorithm, "seed": seed}),
    )


def _check_assignments(assignments: Values, methods: Sequence[Method]) -> None:
    known = {name for method in methods for name in _setting_names(method.algorithm)}
    varied = {name for method in methods for name in method.changes}
    for name, value in assignments.items():
        if name in COORDINATES:
            raise SettingError(f"--set {name}: the runs differ in it, and there is an option for it")
        if name in varied:
            raise SettingError(f"--set {name}: that is what is varied here")
        if name not in known:
            make_config(("--set", {"algorithm": methods[0].algorithm, name: value}))


def _setting_names(algorithm: str) -> set[str]:
    return {entry.name for kind in (RunSettings, find_algorithm(algorithm).Settings) for entry in fields(kind)}


def state(cell: Cell) -> State:
    """What has become of a cell.

    Raises:
        RunError: If its folder holds a run with other settings, or its result cannot be read.
    """
    directory = RunDirectory(cell.folder)
    if directory.metrics_file.exists():
        _check_same(directory, cell)
    if directory.result_file.exists():
        directory.read_result()
        return State.FINISHED
    if (cell.folder / FAILED_FILE).exists():
        return State.FAILED
    return State.UNFINISHED if directory.metrics_file.exists() else State.NEW


def _check_same(directory: RunDirectory, cell: Cell) -> None:
    there, wanted = directory.load_config().values(), cell.config.values()
    for name in wanted.keys() - set(IMMATERIAL):
        if there.get(name) != wanted[name]:
            raise RunError(
                f"{cell.folder} holds a run with {name} = {there.get(name)}, but it is to be {wanted[name]}; "
                "choose another --out, or remove that folder"
            )


@contextmanager
def claimed(out: Path, kind: str, command: str) -> Iterator[Lock]:
    """Hold the folder of a grid, new or begun earlier, and note the command; nobody else may work there meanwhile.

    Args:
        out: The folder.
        kind: What the grid is: ``comparison``, or the name of a study. A folder holds only one kind.
        command: What was typed.

    Raises:
        RunError: If the folder holds something else, or another process works there.
    """
    if (out / "config.toml").exists():
        raise RunError(f"{out} is the folder of a single run; choose another --out")
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file; choose another --out")
    crowd = [] if not out.exists() else [entry.name for entry in out.iterdir() if not entry.name.startswith(".")]
    if crowd and GRID_FILE not in crowd:
        raise RunError(f"{out} is not empty ({min(crowd)}) and was not made by this command; choose another --out")
    with locked(out, wait=False) as lock:
        _note(out / GRID_FILE, kind, command)
        yield lock


def _note(file: Path, kind: str, command: str) -> None:
    known, commands = _read_note(file) if file.exists() else (kind, [])
    if known != kind:
        raise RunError(f"{file.parent} holds the runs of another grid ({known}); choose another --out")
    if command not in commands:
        text = json.dumps({"kind": kind, "commands": [*commands, command]}, indent=2) + "\n"
        atomic_write_text(file, text, RunError)


def _read_note(file: Path) -> tuple[str, list[str]]:
    remedy = "choose another --out"
    note = read_json(file, RunError, remedy, " cannot be read: it")
    kind, commands = note.get("kind"), note.get("commands")
    if not (isinstance(kind, str) and isinstance(commands, list) and all(isinstance(one, str) for one in commands)):
        raise RunError(f"{file} cannot be read (it does not name a kind of grid and its commands); {remedy}")
    return kind, commands
