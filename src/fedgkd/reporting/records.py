"""Runs read back from disk: what every table and figure is made of.

A folder tree is searched for runs (``config.toml`` beside the files of ``fedgkd run``). Finished ones have
``result.json``; a run without it is still going on or was stopped, and one with ``failed.json`` has failed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedgkd.checksums import damaged_files
from fedgkd.data.npz import open_arrays
from fedgkd.errors import DataError, RunError, quoted, shortened, system_errors
from fedgkd.fields import (
    SHARE,
    Kind,
    by_name,
    check_result,
    listed,
    number,
    optional,
    plain_value,
    text,
    whole,
)
from fedgkd.parsing import json_value, read_json, read_text, read_toml
from fedgkd.reporting.methods import method_title
from fedgkd.reporting.motivation import Motivation, read_motivation
from fedgkd.settings import NONE, suggest

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

MATRICES = ("R", "S", "Q")

# A folder with config.toml alone is somebody's settings; a run has at least one of these from its start.
_BEGUN = ("clients.json", "metrics.jsonl", "checkpoint")
_NEVER_RUNS = ("checkpoint", "models", "figures")


@dataclass(frozen=True)
class Study:
    """An ablation study: the setting that it varies, and the values in their order.

    Where it varies several settings at once, the values are names, and ``variants`` has the one of every method.
    """

    name: str
    setting: str
    values: tuple[Any, ...]
    variants: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Clients:
    """Who the clients of a run are.

    Attributes:
        names: One per client.
        nodes: Number of nodes.
        labels: How many nodes of each class, ``(clients, classes)``.
        classes: Names of the classes; their numbers where they have none.
    """

    names: tuple[str, ...]
    nodes: tuple[int, ...]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class FinishedRun:
    """A whole run; its rounds, relations and clients are read when they are first asked for.

    Attributes:
        folder: Where it lies.
        name: The folder as seen from the records' folder.
        settings: All of ``config.toml``.
        result: All of ``result.json``.
        study: The ablation study that it belongs to.
    """

    folder: Path
    name: str
    settings: Mapping[str, Any]
    result: Mapping[str, Any]
    study: Study | None = None

    @cached_property
    def rounds(self) -> dict[str, Array]:
        """The columns of ``ROUND_COLUMNS``, one number per round; NaN where a round has none."""
        path = self.folder / "metrics.jsonl"
        lines = _text(path).removesuffix("\n").split("\n")
        rows = [_round_row(path, number, line, self.result["clients"]) for number, line in enumerate(lines, 1)]
        if len(rows) != self.result["rounds"]:
            raise RunError(
                f"{path} has {len(rows)} rounds, but result.json speaks of {self.result['rounds']}; {_REPEAT}"
            )
        table = np.array(rows, dtype=np.float64).reshape(-1, len(ROUND_COLUMNS))
        return dict(zip(ROUND_COLUMNS, table.T, strict=True))

    def relation_quality(self, numbers: Iterable[int]) -> dict[int, float]:
        """The relation's at those rounds that have one."""
        every = self.rounds["relation_quality"]
        found = {number: float(every[number - 1]) for number in numbers if number <= len(every)}
        return {number: quality for number, quality in found.items() if not np.isnan(quality)}

    def visits(self) -> float:
        """How often a client took part in a round, all clients together; NaN if that is not known."""
        return float(self.rounds["participants"].sum())

    def relations(self) -> dict[str, NDArray[np.float32]]:
        """R, S and Q, each rounds × clients × clients; those that the algorithm does not have are left out."""
        path = self.folder / "relations.npz"
        shape = (self.result["rounds"], self.result["clients"], self.result["clients"])
        if not path.exists():
            return {}
        try:
            with open_arrays(path) as file:
                matrices = {name: file[name] for name in MATRICES}
        except DataError as error:
            raise RunError(f"{path} cannot be read ({error}); {_REPEAT}") from error
        for name, matrix in matrices.items():
            if matrix.shape != shape:
                raise RunError(f"{path}: {name} is of shape {shortened(matrix.shape)}, not {shape}; {_REPEAT}")
            if matrix.dtype != np.float32 or np.isinf(matrix).any() or (name == "Q" and _no_weights(matrix)):
                raise RunError(f"{path}: {name} has values that it cannot have; {_REPEAT}")
        return {name: matrix for name, matrix in matrices.items() if np.isfinite(matrix).any()}

    def clients(self) -> Clients | None:
        """None for a run that did not write them down."""
        path = self.folder / "clients.json"
        if not path.exists():
            return None
        facts = read_json(path, RunError, _REPEAT)
        if not _describes_clients(facts, self.result["client_names"]):
            raise RunError(f"{path} does not say who the clients are, or not those of the result beside it; remove it")
        labels = np.array(facts["labels"], dtype=np.int64)
        classes = facts["class_names"] or map(str, range(labels.shape[1]))
        return Clients(tuple(facts["names"]), tuple(facts["nodes"]), labels, tuple(classes))


@dataclass(frozen=True)
class FailedRun:
    """A run of a comparison that did not come to its end, and why."""

    name: str
    settings: Mapping[str, Any]
    error: str


@dataclass(frozen=True)
class Records:
    """All that lies below a folder.

    Attributes:
        folder: The folder.
        runs: The finished runs, in the order of their names.
        failed: Runs that failed.
        unfinished: Names of the runs that are going on or were stopped.
        motivations: Motivating studies.
    """

    folder: Path
    runs: tuple[FinishedRun, ...]
    failed: tuple[FailedRun, ...]
    unfinished: tuple[str, ...]
    motivations: tuple[Motivation, ...]

    @property
    def warnings(self) -> list[str]:
        """What a reader of the figures should know."""
        return [*_unfinished_sentence(self.unfinished), *_version_sentences(self.runs)]

    def without(self, algorithms: Collection[str]) -> Records:
        """The same less the finished runs of those algorithms.

        Args:
            algorithms: By their names, or by their titles in tables.

        Raises:
            RunError: If there is no run of one of them, or nothing is left.
        """
        known = sorted({run.result["algorithm"] for run in self.runs})
        named = {name: name for name in known} | {method_title(name): name for name in known}
        for name in algorithms:
            if name not in named:
                hint = suggest(name, named) or (f"; there are {', '.join(known)}" if known else "")
                raise RunError(f"there is no finished run of {quoted(name)}{hint}")
        left_out = {named[name] for name in algorithms}
        if known and len(left_out) == len(known):
            raise RunError(f"without {', '.join(known)} there are no runs left")
        return replace(self, runs=tuple(run for run in self.runs if run.result["algorithm"] not in left_out))


@system_errors(RunError)
def read_records(folder: Path | str) -> Records:
    """Find and read everything that can be reported.

    Raises:
        RunError: If there is nothing to report, or a file of a run is damaged; the sentence says which one, and where.
    """
    root = Path(folder)
    if not root.is_dir():
        raise RunError(f"there is no folder {root}; give the one that fedgkd run, compare or ablate wrote to")
    runs: list[FinishedRun] = []
    failed: list[FailedRun] = []
    unfinished: list[str] = []
    motivations: list[Motivation] = []
    for path, study in _walk(root):
        name = _name(path, root)
        if (path / "motivation.json").exists():
            motivations.append(read_motivation(path, name))
        if (path / "config.toml").exists() and (path / "result.json").exists():
            runs.append(_finished(path, name, study))
        elif (path / "failed.json").exists():
            failed.append(_failed(path, name))
        elif (path / "config.toml").exists() and any((path / trace).exists() for trace in _BEGUN):
            unfinished.append(name)
    if not (runs or motivations):
        raise RunError(_nothing(root, failed, unfinished))
    return Records(root, tuple(runs), tuple(failed), tuple(unfinished), tuple(motivations))


def merged(records: Sequence[Records]) -> Records:
    """All of them as if they lay in the folder of the first."""
    if len(records) == 1:
        return records[0]
    fields = ("runs", "failed", "unfinished", "motivations")
    together = (tuple(item for one in records for item in getattr(one, name)) for name in fields)
    return Records(records[0].folder, *together)


def load_records(folder: Path | str) -> pd.DataFrame:
    """All finished runs below a folder as a table, one row each.

    The columns are ``run`` (its folder, seen from ``folder``), ``study`` (the ablation study that it belongs to, if
    any), every figure of ``result.json`` by its name there (``test_accuracy``, ``seconds``, …; ``per_client`` and
    ``client_names`` are lists; ``versions`` are spread over ``version_fedgkd``, ``version_torch``, …), and every
    setting of ``config.toml``. A setting that has the name of a figure is called ``setting_<name>``:
    ``rounds`` is how many there were, ``setting_rounds`` how many there could have been.

    Args:
        folder: Any folder that holds runs, at any depth.

    Raises:
        RunError: If there is no finished run, or a file of one is damaged.
    """
    import pandas as pd

    return pd.DataFrame([_row(run) for run in _runs(folder)])


def load_rounds(folder: Path | str) -> pd.DataFrame:
    """All rounds of all finished runs below a folder, one row each.

    Beside ``run``, ``algorithm``, ``dataset``, ``setting``, ``clients`` and ``seed`` the columns are those of
    :data:`ROUND_COLUMNS`. Accuracies are means over clients of the scored model, unless the name says otherwise; bytes
    are those of all clients together.

    Raises:
        RunError: As :func:`load_records`.
    """
    import pandas as pd

    keys = ("algorithm", "dataset", "setting", "clients", "seed")
    frames = []
    for run in _runs(folder):
        frame = pd.DataFrame(run.rounds)
        frame["round"] = frame["round"].astype(int)
        for position, key in enumerate(("run", *keys)):
            frame.insert(position, key, run.name if key == "run" else run.result[key])
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _runs(folder: Path | str) -> Sequence[FinishedRun]:
    records = read_records(folder)
    if not records.runs:
        raise RunError(f"{folder} holds no finished run, only a motivating study")
    return records.runs


def _row(run: FinishedRun) -> dict[str, Any]:
    figures = {name: value for name, value in run.result.items() if name != "versions"}
    versions = {f"version_{name}": version for name, version in run.result["versions"].items()}
    settings = {f"setting_{name}" if name in figures else name: value for name, value in run.settings.items()}
    return {"run": run.name, "study": run.study and run.study.name} | figures | versions | settings


# --- one round ------------------------------------------------------------------------------------------------------

_FIELDS: dict[str, tuple[str, ...]] = {
    "round": ("round",),
    "loss": ("loss",),
    "train_accuracy": ("selected", "accuracy", "train"),
    "val_accuracy": ("selected", "accuracy", "val"),
    "test_accuracy": ("selected", "accuracy", "test"),
    "test_accuracy_weighted": ("selected", "accuracy_weighted", "test"),
    "test_macro_f1": ("selected", "macro_f1", "test"),
    "test_accuracy_trained": ("trained", "accuracy", "test"),
    "test_accuracy_received": ("received", "accuracy", "test"),
    "relation_quality": ("relation_quality",),
    "seconds": ("seconds", "total"),
}
# The others are shares.
_KINDS: dict[str, Kind] = {
    "round": whole(1),
    "loss": optional(number()),
    "relation_quality": optional(number()),
    "seconds": number(0),
}

ROUND_COLUMNS = (*_FIELDS, "participants", "bytes_up", "bytes_down")


def _round_row(path: Path, place: int, line: str, clients: int) -> list[float]:
    where = f"{path}, line {place},"
    record = json_value(line, where, RunError, _REPEAT)
    try:
        values = {name: _value(record, keys) for name, keys in _FIELDS.items()}
        present, sent = record["present"], [record["bytes_up"], record["bytes_down"]]
    except (KeyError, TypeError) as error:
        raise RunError(f"{where} is not the record of a round ({error}); {_REPEAT}") from error
    strange = [name for name, value in values.items() if not _KINDS.get(name, SHARE)(value)]
    if not (listed(whole())(present) and len(set(present)) == len(present) and max(present, default=0) < clients):
        strange.append("present")
    if not listed(whole())(sent):
        strange.append("bytes_up or bytes_down")
    if strange:
        raise RunError(
            f"{where} is not the record of a round ({strange[0]} has a value that it cannot have); {_REPEAT}"
        )
    if values["round"] != place:
        raise RunError(f"{where} is the record of round {values['round']}, not of round {place}; {_REPEAT}")
    numbers = [float("nan") if value is None else float(value) for value in values.values()]
    return [*numbers, len(present), *(len(present) * each for each in sent)]


def _value(record: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        record = record[key]
    return record


def _no_weights(matrix: Array) -> bool:
    """Whether a mixture's rows hold anything but shares."""
    return bool((matrix < -_ROUNDING).any() or (matrix > 1 + _ROUNDING).any())


_ROUNDING = 1e-3


def _describes_clients(facts: Mapping[str, Any], names: Sequence[str]) -> bool:
    if facts.get("names") != list(names) or "class_names" not in facts:
        return False
    nodes, labels, classes = facts.get("nodes"), facts.get("labels"), facts["class_names"]
    if not (listed(whole())(nodes) and listed(listed(whole()))(labels) and optional(listed(text))(classes)):
        return False
    if not len(nodes or ()) == len(labels or ()) == len(names):
        return False
    rows = list(zip(labels or (), nodes or (), strict=True))
    width = len(classes or rows[0][0])
    return width > 0 and all(len(row) == width and sum(row) <= size for row, size in rows)


# --- files ----------------------------------------------------------------------------------------------------------

_REPEAT = "put back a copy of the file, or move the run elsewhere and repeat it"


def _walk(root: Path) -> Iterator[tuple[Path, Study | None]]:
    """All folders below, each with the study that it lies in; hidden ones are somebody's unfinished writing."""
    todo: list[tuple[Path, Study | None]] = [(root, None)]
    while todo:
        folder, study = todo.pop()
        if (folder / "study.json").exists():
            study = _study(folder / "study.json")
        yield folder, study
        with os.scandir(folder) as entries:
            below = sorted((entry.name for entry in entries if entry.is_dir(follow_symlinks=False)), reverse=True)
        todo += [(folder / name, study) for name in below if name not in _NEVER_RUNS and not name.startswith(".")]


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path != root else path.resolve().name


def _finished(path: Path, name: str, study: Study | None) -> FinishedRun:
    for sentence in damaged_files(path, lambda name: not name.startswith("models/")):
        raise RunError(f"{sentence}; {_REPEAT}")
    settings, result = _read_settings(path), read_json(path / "result.json", RunError, _REPEAT)
    check_result(str(path / "result.json"), result, _REPEAT)
    if any(settings.get(name) != result[name] for name in ("algorithm", "seed")):
        raise RunError(f"{path / 'config.toml'} is not that of the result beside it; {_REPEAT}")
    return FinishedRun(path, name, settings, result, study)


def _failed(path: Path, name: str) -> FailedRun:
    """A run may fail before it has written its settings."""
    settings = _read_settings(path) if (path / "config.toml").exists() else {}
    reason = read_json(path / "failed.json", RunError, _REPEAT).get("error", "no reason given")
    if not isinstance(reason, str):
        raise RunError(f"{path / 'failed.json'} does not say why the run failed; {_REPEAT}")
    return FailedRun(name, settings, reason)


_STUDY: dict[str, Kind] = {"study": text, "setting": text, "values": listed(plain_value)}


def _study(path: Path) -> Study:
    facts = read_json(path, RunError, "repeat fedgkd ablate")
    variants = facts.get("variants", {})
    if not (all(name in facts and kind(facts[name]) for name, kind in _STUDY.items()) and by_name(text)(variants)):
        raise RunError(f"{path} does not describe a study (its name, its setting and its values); repeat fedgkd ablate")
    return Study(facts["study"], facts["setting"], tuple(facts["values"]), variants)


def _read_settings(folder: Path) -> dict[str, Any]:
    path = folder / "config.toml"
    values = read_toml(path, RunError, _REPEAT)
    for name, value in values.items():
        if not plain_value(value):
            raise RunError(f"{path}: {shortened(name)} cannot be {shortened(value)}; {_REPEAT}")
    return {name: None if value == NONE else value for name, value in values.items()}


def _text(path: Path) -> str:
    if not path.exists():
        raise RunError(f"{path} is missing although the run is finished; {_REPEAT}")
    return read_text(path, RunError, _REPEAT)


# --- sentences ------------------------------------------------------------------------------------------------------


def _nothing(root: Path, failed: Sequence[FailedRun], unfinished: Sequence[str]) -> str:
    if failed:
        return f"{root} holds no finished run: {len(failed)} failed, {failed[0].name} with: {failed[0].error}"
    if unfinished:
        how = f"fedgkd resume {root / unfinished[0]}"
        if (root / "grid.json").exists():
            how = "the command that began them (see grid.json)"
        return f"{root} holds no finished run ({len(unfinished)} unfinished); go on with: {how}"
    return f"{root} holds no runs; give the folder that fedgkd run, compare or ablate wrote to"


def _unfinished_sentence(names: Sequence[str]) -> Iterator[str]:
    if names:
        are = "1 run is" if len(names) == 1 else f"{len(names)} runs are"
        yield f"{are} not finished and left out: {_some(names)}."


def _version_sentences(runs: Sequence[FinishedRun]) -> Iterator[str]:
    """Figures of one version of the program may not be repeatable with another."""
    counts = Counter(str(run.result["versions"].get("fedgkd")) for run in runs)
    if len(counts) > 1:
        parts = ", ".join(f"{version} ({number})" for version, number in sorted(counts.items()))
        yield f"The runs are of different versions of fedgkd: {parts}; compare them with care."


def _some(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
