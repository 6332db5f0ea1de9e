"""Finished runs as lines of a file that is small enough to be published beside the code.

A line keeps the figures of ``result.json`` under their names there, the settings that differ from the algorithm's
defaults, and the quality of the relation at a few rounds. The clients' accuracies are fractions of their test nodes
(``37/48``), which are exact, so that tests of significance come out as they do from the folders. Lines are sorted, and
a run takes the place of an earlier one of the same cell, so that a file changes only where its runs did. The first line
says what the defaults were, since those of another version may be others; to read a file, nothing is imported that it
names. Rounds, relation matrices and models stay behind in the folders.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from fedgkd.atomic import atomic_write_text
from fedgkd.errors import RunError
from fedgkd.fields import (
    FEATURES,
    MORE,
    RESULT,
    Kind,
    by_name,
    check_agreement,
    check_fields,
    number,
    plain_value,
    text,
)
from fedgkd.parsing import json_value, read_text
from fedgkd.reporting.quality import ROUNDS
from fedgkd.reporting.records import FinishedRun, Records, Study, read_records
from fedgkd.reporting.studies import study_value

_DIGITS = 5
_HASH_DIGITS = 12
_MOST_NODES = 1_000_000
"""That a client may have: below, no two fractions are so near that a float could be either."""
_NO_NODES = "-"

_PLACE = ("dataset", "setting", "clients", "scored_model", "algorithm")
_KEPT = (
    *_PLACE,
    "seed",
    "test_accuracy",
    "val_accuracy",
    "test_accuracy_weighted",
    "test_accuracy_received",
    "test_accuracy_last",
    "test_macro_f1",
    "rounds",
    "best_round",
    "bytes_up",
    "bytes_down",
    "seconds",
    "partition_hash",
    "versions",
    "per_client",
)
_DEFAULTS = "defaults"
# One for every client: the share of its test nodes as a fraction, or "-".
_SHARES = re.compile(r"(?:(?:[0-9]{1,7}(?:/[1-9][0-9]{0,6})?|-)(?: |$))+")
_KINDS: dict[str, Kind] = {name: kind for name, kind in RESULT.items() if name in _KEPT} | {
    "per_client": lambda value: isinstance(value, str),
    "settings": by_name(plain_value),
}
_STUDY: dict[str, Kind] = {"name": text, "setting": text, "value": plain_value}
_MORE: dict[str, Kind] = {
    FEATURES: MORE[FEATURES],
    "study": lambda value: isinstance(value, dict) and value.keys() >= _STUDY.keys() and _is_study(value),
}

Line = dict[str, Any]


@dataclass(frozen=True)
class Collected:
    """What a file of runs holds after collecting: so many lines, of which so many are new or have changed."""

    lines: int
    new: int
    changed: int


def collect(folders: Sequence[Path], out: Path) -> Collected:
    """Put the finished runs below some folders into a file, beside those that it holds of other cells.

    A cell is a federation, an algorithm, the value that a study gives to its setting, and a seed.

    Raises:
        RunError: If there is no finished run, two runs are of one cell, or a file is damaged.
    """
    before = {_cell(line): _short(line) for line in _read(out)} if out.exists() else {}
    found: dict[tuple[Any, ...], Line] = {}
    names: dict[tuple[Any, ...], Path] = {}
    for run in (run for folder in folders for run in _runs(folder)):
        line = _short(_line(run))
        cell = _cell(line)
        if found.setdefault(cell, line) != line:
            raise RunError(f"{names[cell]} and {run.folder} are runs of one cell; collect them into different files")
        names[cell] = run.folder
    lines = before | found
    _write(out, [lines[cell] for cell in sorted(lines)])
    changed = sum(before[cell] != line for cell, line in found.items() if cell in before)
    return Collected(len(lines), len(lines) - len(before), changed)


def read_collected(path: Path | str) -> Records:
    """The runs of such a file.

    Raises:
        RunError: If a line of it is damaged, or there is none.
    """
    file = Path(path)
    runs = tuple(_run(file, line) for line in _read(file))
    if not runs:
        raise RunError(f"{file} holds no runs; fill it with fedgkd collect")
    return Records(file, runs, (), (), ())


# --- from a run to a line --------------------------------------------------------------------------------------------


def _runs(folder: Path) -> Sequence[FinishedRun]:
    records = read_records(folder)
    if not records.runs:
        raise RunError(f"{folder} holds no finished run, only a motivating study")
    return records.runs


def _line(run: FinishedRun) -> Line:
    line = _kept(run.result)
    line["per_client"] = " ".join(map(_fraction, run.result["per_client"]))
    line["partition_hash"] = (run.result["partition_hash"] or "")[:_HASH_DIGITS]
    line["settings"] = {name: value for name, value in run.settings.items() if name not in _immaterial()}
    if quality := run.relation_quality(ROUNDS):
        line["relation_quality"] = {str(number): value for number, value in quality.items()}
    if run.study:
        value = study_value(run, run.study.setting)
        line["study"] = {"name": run.study.name, "setting": run.study.setting, "value": value}
    return {name: _rounded(value) for name, value in line.items()}


def _kept(result: Mapping[str, Any]) -> Line:
    return {name: result[name] for name in (*_KEPT, FEATURES) if name in _KEPT or name in result}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    return {name: _rounded(part) for name, part in value.items()} if isinstance(value, dict) else value


def _fraction(share: float | None) -> str:
    return _NO_NODES if share is None else str(Fraction(share).limit_denominator(_MOST_NODES))


def _write(file: Path, lines: Sequence[Line]) -> None:
    defaults = {algorithm: _told(algorithm) for algorithm in sorted({line["algorithm"] for line in lines})}
    texts = [json.dumps(part, separators=(",", ":")) + "\n" for part in ({_DEFAULTS: defaults}, *lines)]
    atomic_write_text(file, "".join(texts), RunError)


def _told(algorithm: str) -> dict[str, Any]:
    """The defaults that a line does without."""
    return {name: value for name, value in _defaults(algorithm).items() if name not in (*_immaterial(), *_SAID)}


def _short(line: Line) -> Line:
    """The same with those settings that do not go without saying."""
    usual = _defaults(line["algorithm"]) | _said(line)
    changes = {name: value for name, value in line["settings"].items() if name not in usual or usual[name] != value}
    return line | {"settings": changes}


_SAID = {"algorithm": "algorithm", "dataset": "dataset", "clients": "clients", "partition": "setting", "seed": "seed"}
"""The settings that a result has, and what it calls them."""


def _said(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: result[figure] for name, figure in _SAID.items()}


@cache
def _defaults(algorithm: str) -> dict[str, Any]:
    """Of this version; an algorithm of the user's own has none, and its lines keep all settings."""
    from fedgkd.algorithms import METHODS
    from fedgkd.experiments.config import make_config

    return make_config(("run", {"algorithm": algorithm})).values() if algorithm in METHODS else {}


def _immaterial() -> tuple[str, ...]:
    from fedgkd.experiments.grid import IMMATERIAL

    return IMMATERIAL


# --- from a line to a run --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CollectedRun(FinishedRun):
    """A line; its folder is the file that it stands in, so it has neither rounds nor relations nor clients.

    Attributes:
        quality: The relation's, by the number of the round.
    """

    quality: Mapping[int, float] = field(default_factory=dict)

    def relation_quality(self, numbers: Iterable[int]) -> dict[int, float]:
        return {number: self.quality[number] for number in numbers if number in self.quality}

    def visits(self) -> float:
        everybody = self.settings.get("participation") == 1 and self.settings.get("dropout_rate") == 0
        return float(self.result["rounds"] * self.result["clients"]) if everybody else math.nan


def _cell(line: Line) -> tuple[Any, ...]:
    """By which lines are sorted, and replaced."""
    study = line.get("study")
    varied = (study["name"], json.dumps(study["value"])) if study else ("", "")
    return *(line[name] for name in _PLACE), *varied, line["seed"]


def _read(file: Path) -> Iterator[Line]:
    lines = read_text(file, RunError, "give a folder of runs, or a file of fedgkd collect").removesuffix("\n")
    told: dict[str, dict[str, Any]] = {}
    places: dict[tuple[Any, ...], int] = {}
    for place, written in enumerate(lines.split("\n") if lines else (), 1):
        where = f"{file}, line {place}"
        line = _parsed(written, where)
        if place == 1 and _DEFAULTS in line:
            told = _checked_defaults(line[_DEFAULTS], where)
        else:
            _check(line, where)
            if places.setdefault(_cell(line), place) != place:
                raise RunError(f"{where} is of the same run as line {places[_cell(line)]}; remove one of them")
            algorithm = line["algorithm"]
            defaults = told[algorithm] if algorithm in told else _told(algorithm)
            yield line | {"settings": defaults | _said(line) | line["settings"]}


_REMEDY = "remove the line, and collect its run again"


def _parsed(text: str, where: str) -> Line:
    line = json_value(text, where, RunError, _REMEDY)
    if not isinstance(line, dict):
        raise RunError(f"{where} is not a run; {_REMEDY}")
    return line


def _checked_defaults(defaults: Any, where: str) -> dict[str, dict[str, Any]]:
    if by_name(by_name(plain_value))(defaults):
        return dict(defaults)
    raise RunError(
        f"{where} does not say the defaults of every algorithm; get the file anew, or collect its runs again"
    )


def _check(line: Line, where: str) -> None:
    check_fields(where, line, _KINDS, _REMEDY, _MORE)
    quality = line.get("relation_quality", {})
    if not (by_name(number())(quality) and all(name.isascii() and name.isdecimal() for name in quality)):
        raise RunError(f"{where} has a strange relation_quality (not a number by round); {_REMEDY}")
    if not _SHARES.fullmatch(line["per_client"]):
        raise RunError(f"{where} has a strange per_client (not a fraction or - for every client); {_REMEDY}")
    shares = _shares(line)
    if any(share is not None and share > 1 for share in shares):
        raise RunError(f"{where} has a strange per_client (an accuracy above 1); {_REMEDY}")
    if len(shares) != line["clients"]:
        raise RunError(f"{where} has {len(shares)} accuracies in per_client for {line['clients']} clients; {_REMEDY}")
    check_agreement(where, {**line, "per_client": shares}, _REMEDY)


def _is_study(value: dict[str, Any]) -> bool:
    return all(kind(value[name]) for name, kind in _STUDY.items())


def _quality(line: Line) -> dict[int, float]:
    return {int(number): float(value) for number, value in line.get("relation_quality", {}).items()}


def _shares(line: Line) -> list[float | None]:
    return [None if text == _NO_NODES else float(Fraction(text)) for text in line["per_client"].split()]


def _run(file: Path, line: Line) -> CollectedRun:
    name = "{dataset}-{clients}-{setting}-{algorithm}-seed{seed}".format_map(line)
    settings = dict(line["settings"])
    study = line.get("study")
    if study:  # the variants of some studies differ in several settings, and go by a name
        settings[study["setting"]] = study["value"]
    result = _kept(line) | {"per_client": _shares(line)}
    part = Study(study["name"], study["setting"], ()) if study else None
    return CollectedRun(file, name, settings, result, part, _quality(line))
