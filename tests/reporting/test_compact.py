"""Runs collected into a file: what a line keeps, what replaces what, and the same tables as from the folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedgkd.errors import RunError
from fedgkd.experiments.ablate import write_study as write_facts
from fedgkd.reporting.compact import Collected, collect, read_collected
from fedgkd.reporting.records import read_records
from fedgkd.reporting.report import read_report
from tests.reporting.written import write_comparison, write_run, write_study


def lines(file: Path) -> list[dict[str, Any]]:
    """The runs, without the line of defaults before them."""
    return [json.loads(text) for text in file.read_text().splitlines()[1:]]


def test_what_a_line_keeps(tmp_path: Path) -> None:
    write_run(
        tmp_path / "runs" / "a",
        per_client=[1 / 3, 37 / 48, None],
        rounds=21,
        relations="R",
        lr=0.005,
        threads=2,
        result={"partition_hash": "0123456789abcdef"},
    )
    assert collect([tmp_path / "runs"], tmp_path / "out" / "cora.jsonl") == Collected(1, new=1, changed=0)
    (line,) = lines(tmp_path / "out" / "cora.jsonl")
    assert line == {
        "dataset": "cora",
        "setting": "non-overlapping",
        "clients": 3,
        "scored_model": "just-trained",
        "algorithm": "fedgkd",
        "seed": 0,
        "test_accuracy": 0.55208,
        "val_accuracy": 0.54208,
        "test_accuracy_weighted": 0.55308,
        "test_accuracy_received": 0.50208,
        "test_accuracy_last": 0.55008,
        "test_macro_f1": 0.27604,
        "rounds": 21,
        "best_round": 3,
        "bytes_up": 126_000_000,
        "bytes_down": 63_000_000,
        "bytes_features": 10_080,
        "seconds": 10.5,
        "partition_hash": "0123456789ab",
        "versions": {"fedgkd": "0.1.0", "torch": "2.6"},
        "per_client": "1/3 37/48 -",
        "settings": {"lr": 0.005, "rounds": 10},
        "relation_quality": {"5": 0.5, "20": 2.0},
    }


def test_read_back_it_is_the_same_run(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a", per_client=[1 / 3, 37 / 48, None], tau=0.5)
    collect([tmp_path / "runs"], tmp_path / "cora.jsonl")
    (there,), (here,) = read_records(tmp_path / "runs").runs, read_collected(tmp_path / "cora.jsonl").runs
    assert here.result["per_client"] == there.result["per_client"]
    assert here.settings["tau"] == 0.5
    unlike = {name for name, value in there.settings.items() if here.settings.get(name, ...) != value}
    assert unlike == {"threads"}  # it does not matter to a run, and is not kept


def test_the_tables_are_those_of_the_folders(tmp_path: Path) -> None:
    write_comparison(tmp_path / "runs")
    collect([tmp_path / "runs"], tmp_path / "cora.jsonl")
    assert read_report(tmp_path / "cora.jsonl").tables == read_report(tmp_path / "runs").tables


def test_several_files_and_folders_make_one_report(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a", "fedgkd")
    write_run(tmp_path / "more" / "b", "local")
    collect([tmp_path / "runs"], tmp_path / "cora.jsonl")
    comparison = read_report(tmp_path / "cora.jsonl", tmp_path / "more").comparison
    assert [entry.method.algorithm for cell in comparison.cells for entry in cell.entries] == ["local", "fedgkd"]


def test_again_nothing_changes(tmp_path: Path) -> None:
    file = tmp_path / "cora.jsonl"
    write_comparison(tmp_path / "runs")
    collect([tmp_path / "runs"], file)
    before = file.read_bytes()
    assert collect([tmp_path / "runs", tmp_path / "runs"], file) == Collected(9, new=0, changed=0)
    assert file.read_bytes() == before
    assert [(line["algorithm"], line["seed"]) for line in lines(file)] == sorted(
        (line["algorithm"], line["seed"]) for line in lines(file)
    )


def test_a_newer_run_takes_the_place_of_the_older(tmp_path: Path) -> None:
    file = tmp_path / "cora.jsonl"
    write_run(tmp_path / "old" / "a", "fedgkd")
    write_run(tmp_path / "old" / "b", "local")
    collect([tmp_path / "old"], file)
    write_run(tmp_path / "new" / "a", "fedgkd", per_client=[0.5] * 3, lr=0.005)
    write_run(tmp_path / "new" / "c", "fedgkd", seed=1)
    assert collect([tmp_path / "new"], file) == Collected(3, new=1, changed=1)
    assert [(line["algorithm"], line["seed"], line["test_accuracy"]) for line in lines(file)] == [
        ("fedgkd", 0, 0.5),
        ("fedgkd", 1, 0.8),
        ("local", 0, 0.8),
    ]


def test_two_runs_of_one_cell_are_not_chosen_from(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a", lr=0.01)
    write_run(tmp_path / "runs" / "b", lr=0.02)
    with pytest.raises(RunError, match=r"runs/a and .*runs/b are runs of one cell"):
        collect([tmp_path / "runs"], tmp_path / "cora.jsonl")
    assert not (tmp_path / "cora.jsonl").exists()


def test_a_study_keeps_its_values(tmp_path: Path) -> None:
    write_study(tmp_path / "tau", "tau", [0.05, 0.5])
    for value in (0.05, 0.5):  # the first is the default
        write_run(tmp_path / "tau" / str(value), tau=value, per_client=[value] * 3)
    write_run(tmp_path / "tau" / "beside", "local")
    collect([tmp_path / "tau"], tmp_path / "tau.jsonl")
    ((here,), (there,)) = read_report(tmp_path / "tau.jsonl").studies, read_report(tmp_path / "tau").studies
    assert here.values == there.values == (0.05, 0.5, "Local")
    assert [entry.mean() for entry in here.lines[0].entries.values()] == pytest.approx([0.05, 0.5, 0.8])


def test_variants_of_several_settings_keep_their_names(tmp_path: Path) -> None:
    write_facts("relation", tmp_path / "study")
    write_run(tmp_path / "study" / "cora-3-non-overlapping-fedgkd-x0_scale=1.0-seed0", x0_scale=1.0)
    write_run(tmp_path / "study" / "cora-3-non-overlapping-fedgkd-seed0")
    collect([tmp_path / "study"], tmp_path / "study.jsonl")
    ((here,), (there,)) = read_report(tmp_path / "study.jsonl").studies, read_report(tmp_path / "study").studies
    assert here.values == there.values == ("default", "x0-1")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("{", "line 3 is not JSON"),
        ("[]", "line 3 is not a run"),
        ("{}", "line 3 has no algorithm"),
        ({"rounds": "many"}, 'line 3: rounds cannot be "many"'),
        ({"per_client": "1/2 1/0 1/2"}, "line 3 has a strange per_client"),
        ({"relation_quality": {"five": 0.5}}, "line 3 has a strange relation_quality"),
        ({"relation_quality": [0.5]}, "line 3 has a strange relation_quality"),
        ({"bytes_features": "1"}, 'line 3: bytes_features cannot be "1"'),
        ({"per_client": "1/2"}, "line 3 has 1 accuracies in per_client for 3 clients"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, change: str | dict[str, Any], sentence: str) -> None:
    file = tmp_path / "cora.jsonl"
    write_run(tmp_path / "runs" / "a")
    collect([tmp_path / "runs"], file)
    text = change if isinstance(change, str) else json.dumps(lines(file)[0] | change)
    file.write_text(file.read_text() + text + "\n")
    with pytest.raises(RunError, match=sentence):
        read_collected(file)
    with pytest.raises(RunError, match=sentence):
        collect([tmp_path / "runs"], file)


def test_a_version_with_other_defaults_reads_the_same_settings(tmp_path: Path) -> None:
    """And leaves them as they are when it collects more into the file."""
    file = tmp_path / "cora.jsonl"
    write_run(tmp_path / "runs" / "a", tau=0.5)
    collect([tmp_path / "runs"], file)
    head, run = (json.loads(text) for text in file.read_text().splitlines())
    assert head["defaults"]["fedgkd"]["lr"] == 0.01
    assert {"threads", "seed", "dataset", "algorithm"}.isdisjoint(head["defaults"]["fedgkd"])
    head["defaults"]["fedgkd"] |= {"lr": 0.2, "tau_s": 7.0}  # what that version had where its runs say nothing
    file.write_text(json.dumps(head) + "\n" + json.dumps(run) + "\n")
    wanted = {"lr": 0.2, "tau_s": 7.0, "tau": 0.5}
    assert {name: read_collected(file).runs[0].settings[name] for name in wanted} == wanted
    write_run(tmp_path / "more" / "b", "local")
    assert collect([tmp_path / "more"], file) == Collected(2, new=1, changed=0)
    assert {name: read_collected(file).runs[0].settings[name] for name in wanted} == wanted
    assert lines(file)[0]["settings"] == {"rounds": 10, **wanted}


def test_a_file_without_defaults_is_of_this_version(tmp_path: Path) -> None:
    file = tmp_path / "cora.jsonl"
    write_run(tmp_path / "runs" / "a", tau=0.5)
    collect([tmp_path / "runs"], file)
    before = read_collected(file).runs
    file.write_text(file.read_text().partition("\n")[2])
    assert read_collected(file).runs == before


@pytest.mark.parametrize("headed", [True, False])
def test_nothing_is_imported_that_a_file_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headed: bool) -> None:
    """An algorithm of one's own keeps all its settings, and its module may be anybody's."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "cora.jsonl"
    write_run(tmp_path / "runs" / "a", "mine_here:Own", own_share=0.7, participation=1.0, dropout_rate=0.0)
    (tmp_path / "mine_here.py").write_text("raise SystemExit('imported')")
    collect([tmp_path / "runs"], file)
    if not headed:
        file.write_text(file.read_text().partition("\n")[2])
    for _ in range(2):
        (run,) = read_collected(file).runs
        assert (run.settings["own_share"], run.settings["lr"], run.visits()) == (0.7, 0.01, 12)
        collect([tmp_path / "runs"], file)


@pytest.mark.parametrize("defaults", [[], {"fedgkd": 1}])
def test_damaged_defaults(tmp_path: Path, defaults: Any) -> None:
    (tmp_path / "cora.jsonl").write_text(json.dumps({"defaults": defaults}) + "\n")
    with pytest.raises(RunError, match="line 1 does not say the defaults of every algorithm; get"):
        read_collected(tmp_path / "cora.jsonl")


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "cora.jsonl").write_text("")
    with pytest.raises(RunError, match="holds no runs; fill it with fedgkd collect"):
        read_collected(tmp_path / "cora.jsonl")
