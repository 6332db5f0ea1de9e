"""What stands in the tables, with numbers worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fedgkd.reporting.comparison import with_gaps
from fedgkd.reporting.report import Report, read_report
from fedgkd.reporting.tables import (
    Table,
    Value,
    comparison_tables,
    distances,
    overviews,
    runs_table,
    standing,
    summarise,
    summary_frame,
)
from tests.reporting.written import write_motivation, write_run, write_study


def table_of(report: Report, title: str) -> Table:
    (found,) = [table for table in report.all_tables if table.title == title]
    return found


def column(table: Table, head: str) -> list[Value]:
    (place,) = [k for k, other in enumerate(table.columns) if other.head == head]
    return [row[place] for row in table.rows]


@pytest.fixture
def five_clients(tmp_path: Path) -> Report:
    """The paper's Cora with 5 clients: FedGKD at 80, 82 and 84 %, Local at 70 % once."""
    for seed, accuracy in enumerate((0.80, 0.82, 0.84)):
        write_run(tmp_path / f"fedgkd-{seed}", "fedgkd", seed, [accuracy] * 5)
    write_run(tmp_path / "local-0", "local", 0, [0.70] * 5, rounds=8, best_round=2)
    return read_report(tmp_path)


def test_mean_and_sample_standard_deviation(five_clients: Report) -> None:
    accuracies = table_of(five_clients, "Accuracy: Cora, non-overlapping, 5 clients")
    head = "test accuracy (%), just-trained models"
    assert column(accuracies, head) == [Value("70.00"), Value("82.00 ± 2.00", best=True)]
    assert [value.text for value in column(accuracies, "method")] == ["Local", "FedGKD"]
    assert [value.text for value in column(accuracies, "rank")] == ["2", "1"]
    assert [value.text for value in column(accuracies, "mean over nodes")] == ["70.10", "82.10"]
    assert [value.text for value in column(accuracies, "received models")] == ["65.00", "77.00"]
    assert [value.text for value in column(accuracies, "last round")] == ["69.80", "81.80"]
    assert [value.text for value in column(accuracies, "macro-F1")] == ["35.00", "41.00"]


def test_the_papers_figures_and_the_difference(five_clients: Report) -> None:
    accuracies = table_of(five_clients, "Accuracy: Cora, non-overlapping, 5 clients")
    assert [value.text for value in column(accuracies, "printed")] == ["80.44 ± 1.77", "83.37 ± 1.59"]
    assert [value.text for value in column(accuracies, "ours − paper")] == ["−10.44", "−1.37"]


def test_no_columns_of_the_paper_where_it_prints_nothing(tmp_path: Path) -> None:
    write_run(tmp_path / "a", per_client=[0.8] * 7)
    (accuracies,) = [table for table in read_report(tmp_path).tables if table.title.startswith("Accuracy")]
    assert "printed" not in {column.head for column in accuracies.columns}


def test_costs(five_clients: Report) -> None:
    costs = table_of(five_clients, "Cost: Cora, non-overlapping, 5 clients")
    heads = [column.head for column in costs.columns]
    assert {head: [value.text for value in column(costs, head)] for head in heads} == {
        "method": ["Local", "FedGKD"],
        "rounds": ["8.0", "4.0"],
        "best round": ["2.0", "3.0"],
        "up": ["2.000", "2.000"],
        "down": ["1.000", "1.000"],
        "MB in all": ["120.0", "60.0"],
        "seconds": ["4.0", "2.0"],
    }


def test_overview(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "fedgkd", per_client=[0.8] * 5)
    write_run(tmp_path / "b", "local", per_client=[0.9] * 5)
    write_run(tmp_path / "c", "fedgkd", per_client=[0.7] * 5, dataset="citeseer")
    write_run(tmp_path / "d", "centralised", per_client=[0.95] * 5)
    overview = read_report(tmp_path).tables[0]
    assert overview.title == "Test accuracy, non-overlapping"
    assert [(column.group, column.head) for column in overview.columns] == [
        ("", "test accuracy (%), just-trained models"),
        ("Cora", "5 clients"),
        ("CiteSeer", "5 clients"),
        ("", "mean rank"),
    ]
    assert [[value.text for value in row] for row in overview.rows] == [
        ["Local", "90.00", "–", "1.00 (1)"],
        ["FedGKD", "80.00", "70.00", "1.50"],
        ["FedGKD, as published", "83.37 ± 1.59", "75.25 ± 1.38", "–"],
        ["Centralised", "95.00", "–", "–"],
    ]
    assert [row[1].best for row in overview.rows] == [True, False, False, False]
    assert "Centralised sees all graphs at once: a ceiling, not ranked." in overview.notes


def test_fewer_seeds_than_others_are_told(five_clients: Report) -> None:
    assert [row[1].text for row in five_clients.tables[0].rows] == ["70.00 (1 seed)", "82.00 ± 2.00", "83.37 ± 1.59"]


def test_a_column_for_every_cell_of_the_paper(five_clients: Report) -> None:
    (table,) = overviews(with_gaps(five_clients.comparison))
    assert [column.head for column in table.columns[1:]] == ["5 clients", "10 clients", "20 clients", "mean rank"]
    assert [value.text for value in table.rows[1]] == ["FedGKD", "82.00 ± 2.00", "–", "–", "1.00 (1)"]


def test_no_columns_beside_federations_that_the_paper_has_not(tmp_path: Path) -> None:
    write_run(tmp_path / "a", dataset="synthetic")
    comparison = read_report(tmp_path).comparison
    assert with_gaps(comparison) == comparison


def test_how_fedgkd_stands(tmp_path: Path) -> None:
    """First with 5 clients at just the paper's figure, behind by more than chance with 10, alone with 20."""
    for clients, ours, other in ((5, 0.8337, 0.7), (10, 0.7, 0.8), (20, 0.9, None)):
        write_run(tmp_path / f"fedgkd-{clients}", "fedgkd", per_client=[ours] * clients)
        if other:
            write_run(tmp_path / f"local-{clients}", "local", per_client=[other] * clients)
    assert standing(read_report(tmp_path).comparison.cells) == [
        "FedGKD is first in 1 of 2 cells; significantly behind the best in 1; at or above the paper's number in 1 of 2."
    ]


def test_the_mean_distance_to_the_best_of_every_cell(tmp_path: Path) -> None:
    accuracies = {3: {"fedgkd": 0.8, "local": 0.7, "centralised": 0.9}, 4: {"fedgkd": 0.6, "local": 0.8, "fedavg": 0.5}}
    for clients, methods in accuracies.items():
        for method, accuracy in methods.items():
            write_run(tmp_path / f"{method}-{clients}", method, per_client=[accuracy] * clients)
    write_run(tmp_path / "alone", "local", per_client=[0.9] * 5)
    cells = read_report(tmp_path).comparison.cells
    assert distances(cells) == [
        "Mean distance to the best of 2 cells, in points: Local 5.00, FedGKD 10.00, FedAvg 30.00 (1)."
    ]
    assert distances(cells[:1]) == []


def test_an_oracle_has_no_traffic(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "centralised")
    costs = read_report(tmp_path).tables[-1]
    assert [value.text for value in costs.rows[0]] == ["Centralised", "4.0", "3.0", "–", "–", "–", "2.0"]


def test_the_head_says_which_model_is_scored(tmp_path: Path) -> None:
    write_run(tmp_path / "a", select="client")
    overview = read_report(tmp_path).tables[0]
    assert overview.columns[0].head == "test accuracy (%), models chosen by each client"


def test_worse_by_more_than_chance_gets_a_star(tmp_path: Path) -> None:
    better = [0.61, 0.72, 0.83, 0.64, 0.75, 0.86]
    write_run(tmp_path / "a", "fedgkd", 0, better)
    write_run(tmp_path / "b", "local", 0, [accuracy - 0.01 * (k + 1) for k, accuracy in enumerate(better)])
    report = read_report(tmp_path)
    local, fedgkd = summarise(report.comparison.cells[0])
    assert local.p_value == pytest.approx(2 / 64)
    assert (local.against, local.pairs, local.worse) == ("FedGKD", 6, True)
    assert math.isnan(fedgkd.p_value)
    assert not fedgkd.worse
    accuracies = report.tables[1]
    assert [value.text for value in column(accuracies, "p")] == ["0.031", "–"]
    assert [value.worse for value in column(accuracies, "test accuracy (%), just-trained models")] == [True, False]


def test_a_run_without_test_nodes_has_no_accuracy(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "local", result={"test_accuracy": None, "per_client": [None] * 3})
    write_run(tmp_path / "b", "fedgkd")
    report = read_report(tmp_path)
    assert [row.rank for row in summarise(report.comparison.cells[0])] == [2, 1]
    assert report.tables[0].rows[0][1].text == "–"


def test_the_frame_has_a_row_per_cell_and_method(five_clients: Report) -> None:
    frame = summary_frame(five_clients.comparison)
    assert frame[["algorithm", "seeds", "rank"]].to_numpy().tolist() == [["local", 1, 2], ["fedgkd", 3, 1]]
    assert frame["test_accuracy"].tolist() == pytest.approx([0.70, 0.82])
    assert frame["difference"].tolist() == pytest.approx([-0.1044, -0.0137])


def test_the_frame_has_studies_without_ranks(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "fedgkd")
    write_study(tmp_path / "tau", "tau", [0.1, 0.5])
    write_run(tmp_path / "tau" / "a", tau=0.1)
    write_run(tmp_path / "tau" / "b", tau=0.5, per_client=[0.6] * 3)
    report = read_report(tmp_path)
    frame = summary_frame(report.comparison, report.studies)
    assert frame["varied"].fillna("").tolist() == ["", "tau", "tau"]
    assert frame["value"].tolist()[1:] == [0.1, 0.5]
    assert frame["test_accuracy"].tolist() == pytest.approx([0.8, 0.8, 0.6])
    assert frame["rank"].isna().tolist() == [False, True, True]


def test_one_client_is_not_many(tmp_path: Path) -> None:
    write_run(tmp_path / "a", per_client=[0.8])
    report = read_report(tmp_path)
    assert report.comparison.cells[0].title == "Cora, non-overlapping, 1 client"
    assert report.tables[0].columns[1].head == "1 client"


def test_studies_keep_out_of_the_comparison(tmp_path: Path) -> None:
    write_study(tmp_path / "tau", "tau", [0.5, 0.1])
    for seed in (0, 1):
        write_run(tmp_path / "tau" / f"a{seed}", tau=0.1, seed=seed, per_client=[0.70 + 0.02 * seed] * 5)
        write_run(tmp_path / "tau" / f"b{seed}", tau=0.5, seed=seed, per_client=[0.80] * 5)
    report = read_report(tmp_path)
    assert comparison_tables(report.comparison) == []
    (table,) = report.study_tables
    assert [[value.text for value in row] for row in table.rows] == [
        ["0.1", "71.00 ± 1.41"],
        ["0.5", "80.00 ± 0.00"],
    ]
    assert [row[1].best for row in table.rows] == [False, True]
    assert table.columns[0].head == "tau"


def test_an_algorithm_beside_a_study_goes_by_its_name(tmp_path: Path) -> None:
    write_study(tmp_path / "kernel", "kernel", ["square", "local"])
    write_run(tmp_path / "kernel" / "a", kernel="local", per_client=[0.8] * 5)
    write_run(tmp_path / "kernel" / "b", kernel="square", per_client=[0.7] * 5)
    write_run(tmp_path / "kernel" / "c", "fedpub", per_client=[0.75] * 5)
    (study,) = read_report(tmp_path).studies
    assert study.values == ("square", "local", "FED-PUB")
    assert not study.numeric


def test_the_motivating_study_in_numbers(tmp_path: Path) -> None:
    write_motivation(tmp_path / "motivation")
    (table,) = read_report(tmp_path).study_tables
    assert [[value.text for value in row] for row in table.rows] == [
        ["embeddings: linear CKA", "0.980 ± 0.014", "0.920 ± 0.028"],
        ["task feature x_h: relation r", "0.850 ± 0.071", "0.200 ± 0.141"],
        ["task feature y: relation r", "0.850 ± 0.071", "0.200 ± 0.141"],
        ["control, embeddings: relation r", "0.900 ± 0.141", "0.300 ± 0.141"],
        ["control, FED-PUB's embeddings: cosine", "0.900 ± 0.141", "0.300 ± 0.141"],
    ]
    assert table.notes[-1] == "Mean ± sample standard deviation over 2 seeds."


def test_failed_runs_are_listed(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    (write_run(tmp_path / "b", "local", 2) / "result.json").unlink()
    (tmp_path / "b" / "failed.json").write_text('{"error": "no memory"}')
    (table,) = read_report(tmp_path).failed_tables
    assert [value.text for value in table.rows[0]] == ["b", "local", "cora", "2", "no memory"]


def test_all_runs(five_clients: Report) -> None:
    table = runs_table(five_clients.records.runs)
    assert [value.text for value in table.rows[-1]] == [
        "local-0",
        "Local",
        "Cora, non-overlapping, 5 clients",
        "just-trained",
        "0",
        "8",
        "2",
        "4.0",
        "70.00",
    ]
