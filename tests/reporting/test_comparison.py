"""Runs in the right cells, under the right names."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedgkd.reporting.comparison import Comparison, compare_runs, slug
from fedgkd.reporting.methods import styles
from fedgkd.reporting.records import read_records
from fedgkd.reporting.tables import standing
from tests.reporting.written import write_run


def compared(folder: Path) -> Comparison:
    return compare_runs(read_records(folder).runs)


def titles(comparison: Comparison) -> list[tuple[str, list[str]]]:
    return [(cell.title, [entry.method.title for entry in cell.entries]) for cell in comparison.cells]


def test_cells_and_methods_stand_as_in_the_paper(tmp_path: Path) -> None:
    write_run(tmp_path / "1", "fedgkd", dataset="citeseer")
    write_run(tmp_path / "2", "fedgkd", dataset="cora")
    write_run(tmp_path / "3", "mine:Algorithm", dataset="cora")
    write_run(tmp_path / "4", "local", dataset="cora")
    write_run(tmp_path / "5", "fedpub", dataset="cora", per_client=[0.5] * 5)
    write_run(tmp_path / "6", "centralised", dataset="cora")
    write_run(tmp_path / "7", "fedgkd", dataset="cora", setting="overlapping")
    comparison = compared(tmp_path)
    assert titles(comparison) == [
        ("Cora, non-overlapping, 3 clients", ["Local", "Algorithm", "FedGKD", "Centralised"]),
        ("Cora, non-overlapping, 5 clients", ["FED-PUB"]),
        ("CiteSeer, non-overlapping, 3 clients", ["FedGKD"]),
        ("Cora, overlapping, 3 clients", ["FedGKD"]),
    ]
    assert [method.title for method in comparison.methods] == ["Local", "FED-PUB", "Algorithm", "FedGKD", "Centralised"]


def test_seeds_are_averaged_and_hardware_does_not_matter(tmp_path: Path) -> None:
    write_run(tmp_path / "a", seed=1, per_client=[0.8], threads=1)
    write_run(tmp_path / "b", seed=0, per_client=[0.6], threads=2)
    (entry,) = compared(tmp_path).cells[0].entries
    assert [run.result["seed"] for run in entry.runs] == [0, 1]
    assert entry.mean() == pytest.approx(0.7)
    assert entry.std() == pytest.approx(0.1414213562)


def test_runs_with_different_settings_are_never_averaged(tmp_path: Path) -> None:
    write_run(tmp_path / "a", tau=0.1, seed=0)
    write_run(tmp_path / "b", tau=0.5, seed=0)
    write_run(tmp_path / "c", tau=0.5, seed=1)
    cell = compared(tmp_path).cells[0]
    assert [(entry.method.title, len(entry.runs)) for entry in cell.entries] == [
        ("FedGKD (tau=0.1)", 1),
        ("FedGKD (tau=0.5)", 2),
    ]


def test_different_data_of_one_name_are_different_cells(tmp_path: Path) -> None:
    write_run(tmp_path / "a", dataset="synthetic", synthetic="homophily=0.2")
    write_run(tmp_path / "b", dataset="synthetic", synthetic="homophily=0.8")
    assert [cell.dataset_title for cell in compared(tmp_path).cells] == [
        "Synthetic (synthetic=homophily=0.2)",
        "Synthetic (synthetic=homophily=0.8)",
    ]


def test_scored_models_do_not_mix(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", select="client")
    assert [cell.scored_model for cell in compared(tmp_path).cells] == ["chosen by each client", "just-trained"]
    assert len({cell.key for cell in compared(tmp_path).cells}) == 2


def test_a_run_made_twice_counts_once(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b")
    comparison = compared(tmp_path)
    assert len(comparison.cells[0].entries[0].runs) == 1
    assert comparison.warnings == ("a was run more than once with the same settings; not counted: b.",)


def test_what_makes_a_comparison_unfair_is_said(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "fedgkd", seed=0, result={"partition_hash": "other"})
    write_run(tmp_path / "b", "local", seed=0)
    write_run(tmp_path / "c", "local", seed=1)
    write_run(tmp_path / "d", "fedavg", seed=0, max_rounds=50)
    place = "Cora, non-overlapping, 3 clients"
    assert compared(tmp_path).warnings == (
        f"{place}: the runs of seed 0 do not share the same clients; they are not paired.",
        f"{place}: the methods were given different rounds: 10, 50.",
        f"{place}: not all methods were run with the same seeds.",
    )


def test_ranks_share_ties_and_leave_oracles_out(tmp_path: Path) -> None:
    for algorithm, accuracy in (("local", 0.7), ("fedavg", 0.8), ("fedgkd", 0.8), ("centralised", 0.9)):
        write_run(tmp_path / algorithm, algorithm, per_client=[accuracy])
    (cell,) = compared(tmp_path).cells
    assert {entry.method.algorithm: cell.rank(entry) for entry in cell.entries} == {
        "local": 3,
        "fedavg": 1,
        "fedgkd": 1,
        "centralised": None,
    }
    best = cell.best()
    assert best is not None
    assert best.method.algorithm == "fedavg"


def test_nobody_is_first_where_nobody_has_a_figure(tmp_path: Path) -> None:
    for algorithm in ("local", "fedgkd"):
        write_run(tmp_path / algorithm, algorithm, result={"test_accuracy": None})
    (cell,) = compared(tmp_path).cells
    assert [cell.rank(entry) for entry in cell.entries] == [None, None]
    assert standing([cell]) == []


def test_the_papers_figures_only_beside_the_papers_protocol(tmp_path: Path) -> None:
    write_run(tmp_path / "paper", per_client=[0.8] * 5)
    write_run(tmp_path / "ratios", per_client=[0.8] * 5, train_ratio=0.5, test_ratio=0.15)
    write_run(tmp_path / "own", per_client=[0.8] * 5, dataset="/home/me/cora")
    write_run(tmp_path / "graphs", per_client=[0.8] * 5, graphs="/home/me/cora")
    printed = {}
    for cell in compared(tmp_path).cells:
        for entry in cell.entries:
            printed[entry.runs[0].name] = cell.paper(entry)
    assert {name: score and score.mean for name, score in printed.items()} == {
        "paper": 83.37,
        "ratios": None,
        "own": None,
        "graphs": None,
    }


def test_every_method_keeps_its_look() -> None:
    alone = styles([("fedgkd", "")])
    beside = styles([("local", ""), ("fedgkd", ""), ("mine:A", ""), ("mine:B", "")])
    assert alone["fedgkd", ""] == beside["fedgkd", ""]
    assert len(set(beside.values())) == 4


def test_slug() -> None:
    assert slug("Cora (tau_s=0.5), 5 clients") == "cora-tau_s-0.5-5-clients"
    assert slug("Städte/a") == "städte-a"
