"""Runs read back from disk: what every table and figure is made of.

A folder tree is searched for runs (``config.toml`` beside the files of ``fedgkd run``). Finished ones have
``result.json``; a run without it is still going on or was stopped, and one with ``failed.json`` has failed.
"""

from __future__ import annotations

import json
import os
import tomllib
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedgkd.errors import RunError, quoted
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
_FIGURE = (int, float, type(None))
FIGURES: dict[str, Any] = {
    "algorithm": str,
    "dataset": str,
    "setting": str,
    "clients": int,
    "seed": int,
    "scored_model": str,
    "rounds": int,
    "best_round": int,
    "test_accuracy": _FIGURE,
    "val_accuracy": _FIGURE,
    "test_accuracy_weighted": _FIGURE,
    "test_accuracy_received": _FIGURE,
    "test_accuracy_last": _FIGURE,
    "test_macro_f1": _FIGURE,
    "per_client": list,
    "client_names": list,
    "bytes_up": int,
    "bytes_down": int,
    "seconds": (int, float),
    "partition_hash": str,
    "versions": dict,
}
"""The figures of a result that are used here, and what they are."""


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
        rows = [_round_row(path, number, line) for number, line in enumerate(_text(path).splitlines(), 1)]
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
            with np.load(path) as file:
                matrices = {name: np.asarray(file[name], np.float32) for name in MATRICES}
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise RunError(f"{path} cannot be read ({error}); {_REPEAT}") from error
        for name, matrix in matrices.items():
            if matrix.shape != shape:
                raise RunError(f"{path}: {name} is of shape {matrix.shape}, not {shape}; {_REPEAT}")
        return {name: matrix for name, matrix in matrices.items() if np.isfinite(matrix).any()}

    def clients(self) -> Clients | None:
        """None for a run that did not write them down."""
        path = self.folder / "clients.json"
        if not path.exists():
            return None
        facts = _read_json(path)
        try:
            labels = np.array(facts["labels"], dtype=np.int64)
            classes = facts["class_names"] or range(labels.shape[1])
            found = Clients(tuple(facts["names"]), tuple(facts["nodes"]), labels, tuple(map(str, classes)))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise RunError(f"{path} does not say who the clients are ({error}); {_REPEAT}") from error
        return found


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
    for path, study in _walk(root, None):
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

ROUND_COLUMNS = (*_FIELDS, "participants", "bytes_up", "bytes_down")


def _round_row(path: Path, number: int, line: str) -> list[float]:
    try:
        record = json.loads(line)
        participants = len(record["present"])
        sent = [record[name] * participants for name in ("bytes_up", "bytes_down")]
        return [*(_number(record, keys) for keys in _FIELDS.values()), participants, *sent]
    except json.JSONDecodeError as error:
        raise RunError(f"{path}, line {number}, is not JSON ({error.msg}); {_REPEAT}") from error
    except (KeyError, TypeError) as error:
        raise RunError(f"{path}, line {number}, is not the record of a round ({error}); {_REPEAT}") from error


def _number(record: Any, keys: Sequence[str]) -> float:
    for key in keys:
        record = record[key]
    return float("nan") if record is None else float(record)


# --- files ----------------------------------------------------------------------------------------------------------

_REPEAT = "put back a copy of the file, or move the run elsewhere and repeat it"


def _walk(folder: Path, study: Study | None) -> Iterator[tuple[Path, Study | None]]:
    """All folders below, each with the study that it lies in; hidden ones are somebody's unfinished writing."""
    if (folder / "study.json").exists():
        study = _study(folder / "study.json")
    yield folder, study
    with os.scandir(folder) as entries:
        below = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    for name in below:
        if name not in _NEVER_RUNS and not name.startswith("."):
            yield from _walk(folder / name, study)


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path != root else path.resolve().name


def _finished(path: Path, name: str, study: Study | None) -> FinishedRun:
    settings, result = _read_settings(path), _read_json(path / "result.json")
    check_figures(str(path / "result.json"), result, FIGURES, _REPEAT)
    if any(settings.get(name) != result[name] for name in ("algorithm", "seed")):
        raise RunError(f"{path / 'config.toml'} is not that of the result beside it; {_REPEAT}")
    return FinishedRun(path, name, settings, result, study)


def check_figures(where: str, result: Mapping[str, Any], kinds: Mapping[str, Any], remedy: str) -> None:
    """Raise a :class:`RunError` unless all figures are there, of the right kind, and lists have a value per client."""
    missing = [name for name in kinds if name not in result]
    if missing:
        raise RunError(f"{where} has no {', '.join(missing)}: it is not of this version of fedgkd; {remedy}")
    strange = [name for name, kind in kinds.items() if not isinstance(result[name], kind)]
    # A list of the wrong length only if it is one.
    strange = strange or [
        name for name, kind in kinds.items() if kind is list and len(result[name]) != result["clients"]
    ]
    if strange:
        raise RunError(f"{where}: {strange[0]} cannot be {json.dumps(result[strange[0]])}; {remedy}")


def _failed(path: Path, name: str) -> FailedRun:
    """A run may fail before it has written its settings."""
    settings = _read_settings(path) if (path / "config.toml").exists() else {}
    return FailedRun(name, settings, str(_read_json(path / "failed.json").get("error", "no reason given")))


def _study(path: Path) -> Study:
    facts = _read_json(path)
    try:
        variants = dict(facts.get("variants", {}))
        return Study(str(facts["study"]), str(facts["setting"]), tuple(facts["values"]), variants)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path} does not describe a study ({error}); repeat fedgkd ablate") from error


def _read_settings(folder: Path) -> dict[str, Any]:
    path = folder / "config.toml"
    try:
        values = tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise RunError(f"{path} is not a TOML file: {error}; {_REPEAT}") from error
    return {name: None if value == NONE else value for name, value in values.items()}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise RunError(f"{path}, line {error.lineno}, is not JSON ({error.msg}); {_REPEAT}") from error
    if not isinstance(value, dict):
        raise RunError(f"{path} holds no fields but a {type(value).__name__}; {_REPEAT}")
    return value


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing although the run is finished; {_REPEAT}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path} cannot be read ({error}); {_REPEAT}") from error


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
