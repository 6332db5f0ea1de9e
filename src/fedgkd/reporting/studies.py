"""Ablation studies: one setting or a few varied, everything else as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedgkd.reporting.comparison import Cell, Entry, compare_runs, group, slug
from fedgkd.reporting.methods import method_title
from fedgkd.reporting.records import FinishedRun


@dataclass(frozen=True)
class StudyLine:
    """One federation in a study: an entry for every value that has runs."""

    cell: Cell
    entries: dict[Any, Entry]


@dataclass(frozen=True)
class StudyResult:
    """All runs of a study.

    Attributes:
        name: The study, as it was asked for.
        setting: The setting that it varies; ``variant`` if there are several.
        values: Its values, or the variants' names, in the study's order; other algorithms that stand beside them go
            by their names.
        lines: One per federation.
    """

    name: str
    setting: str
    values: tuple[Any, ...]
    lines: tuple[StudyLine, ...]

    @property
    def title(self) -> str:
        return f"Study of {self.name}" if self.name == self.setting else f"Study of {self.name}: {self.setting}"

    @property
    def key(self) -> str:
        return slug(self.name if self.name == self.setting else f"{self.name} {self.setting}")

    @property
    def numeric(self) -> bool:
        """Whether the values lie on a line."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)


def study_results(runs: Sequence[FinishedRun]) -> list[StudyResult]:
    """The studies that runs belong to, in the order of their names."""
    in_studies = [run for run in runs if run.study]
    by_study = group(in_studies, lambda run: (run.study.name, run.study.setting) if run.study else ("", ""))
    return [_result(name, setting, by_study[name, setting]) for name, setting in sorted(by_study)]


def _result(name: str, setting: str, runs: Sequence[FinishedRun]) -> StudyResult:
    planned = [value for run in runs if run.study for value in run.study.values]
    by_value = group(runs, lambda run: study_value(run, setting))
    values = [value for value in dict.fromkeys([*planned, *by_value]) if value in by_value]
    if all(isinstance(value, int | float) for value in values):
        values.sort()
    lines: dict[str, tuple[Cell, dict[Any, Entry]]] = {}
    for value in values:
        for cell in compare_runs(by_value[value]).cells:
            lines.setdefault(cell.key, (cell, {}))[1][value] = cell.entries[0]
    return StudyResult(name, setting, tuple(values), tuple(StudyLine(cell, found) for cell, found in lines.values()))


def study_value(run: FinishedRun, setting: str) -> Any:
    """The setting's value, or the variant's name; an algorithm that has neither stands for itself."""
    algorithm = run.result["algorithm"]
    title = method_title(algorithm)
    if run.study is None or not run.study.variants:
        return run.settings.get(setting, title)
    place = "{dataset}-{clients}-{setting}-".format_map(run.result)
    method = run.folder.name.rpartition("-seed")[0].removeprefix(place)
    return {algorithm: title, **run.study.variants}.get(method, method)
