"""A whole report: everything that can be said about a folder of records."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fedgkd.reporting.collaboration import Collaboration, collaborations
from fedgkd.reporting.compact import read_collected
from fedgkd.reporting.comparison import Comparison, compare_runs
from fedgkd.reporting.figures import Chart, cell_charts, motivation_charts, study_chart
from fedgkd.reporting.quality import quality_charts, quality_tables
from fedgkd.reporting.records import Records, merged, read_records
from fedgkd.reporting.studies import StudyResult, study_results
from fedgkd.reporting.tables import Table, comparison_tables, failed_table, motivation_table, study_table

NUMBERS_ON_PAGE = 600_000
"""How many entries of matrices the page may hold; about 3 MB."""


@dataclass(frozen=True)
class Report:
    """Records sorted into what is shown of them.

    Attributes:
        records: What was read.
        comparison: The runs that belong to no study.
        studies: The ablation studies.
    """

    records: Records
    comparison: Comparison
    studies: tuple[StudyResult, ...]

    @property
    def warnings(self) -> list[str]:
        return [*self.records.warnings, *self.comparison.warnings]

    @cached_property
    def tables(self) -> list[Table]:
        return comparison_tables(self.comparison)

    @cached_property
    def study_tables(self) -> list[Table]:
        motivations = map(motivation_table, self.records.motivations)
        return [*map(study_table, self.studies), *quality_tables(self.studies), *motivations]

    @cached_property
    def failed_tables(self) -> list[Table]:
        return [failed_table(self.records.failed)] if self.records.failed else []

    @property
    def all_tables(self) -> list[Table]:
        return [*self.tables, *self.study_tables, *self.failed_tables]

    @cached_property
    def collaborations(self) -> list[Collaboration]:
        return collaborations(self.comparison, NUMBERS_ON_PAGE)

    @property
    def study_charts(self) -> list[Chart]:
        return [*map(study_chart, self.studies), *quality_charts(self.studies)]

    def charts(self) -> Iterator[Chart]:
        for cell in self.comparison.cells:
            yield from cell_charts(cell)
        yield from self.study_charts
        for motivation in self.records.motivations:
            yield from motivation_charts(motivation)


def read_report(*paths: Path | str, without: Collection[str] = ()) -> Report:
    """Read and sort everything below folders, and in files of collected runs; the latter have no rounds to draw.

    Args:
        without: Algorithms to leave out.

    Raises:
        RunError: If there is nothing to report, or a file is damaged.
    """
    records = merged([read_collected(path) if Path(path).is_file() else read_records(path) for path in paths])
    records = records.without(without)
    comparison = compare_runs([run for run in records.runs if run.study is None])
    return Report(records, comparison, tuple(study_results(records.runs)))
