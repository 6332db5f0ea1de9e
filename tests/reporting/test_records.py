"""Records read back: all of them, and clear words where something is wrong with one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedgkd
from fedgkd.errors import RunError
from fedgkd.reporting import load_records, load_rounds
from fedgkd.reporting.records import ROUND_COLUMNS, read_records
from tests.graphs import planted_federation
from tests.reporting.written import write_run, write_study


def test_one_row_per_finished_run_wherever_it_lies(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "b" / "one", "fedgkd", 0, tau=0.5)
    write_run(tmp_path / "two", "local", 1)
    table = load_records(tmp_path)
    assert table["run"].tolist() == ["a/b/one", "two"]
    assert table["algorithm"].tolist() == ["fedgkd", "local"]
    assert table["test_accuracy"].tolist() == pytest.approx([0.8, 0.8])
    assert table["per_client"][0] == [0.9, 0.8, 0.7]
    assert table["tau"][0] == 0.5
    assert np.isnan(table["tau"][1])
    assert table["version_fedgkd"].tolist() == ["0.1.0", "0.1.0"]
    assert table["graphs"].isna().all()


def test_a_setting_with_the_name_of_a_figure_keeps_apart_from_it(tmp_path: Path) -> None:
    write_run(tmp_path / "run", rounds=4)
    row = load_records(tmp_path).iloc[0]
    assert (row["rounds"], row["setting_rounds"]) == (4, 10)


def test_the_folder_of_a_run_will_do(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "one")
    assert load_records(str(folder))["run"].tolist() == ["one"]


def test_a_row_per_round(tmp_path: Path) -> None:
    write_run(tmp_path / "one", seed=3, per_client=[0.9, 0.7], relations="R")
    rounds = load_rounds(tmp_path)
    assert rounds["round"].tolist() == [1, 2, 3, 4]
    assert rounds["test_accuracy"].tolist() == pytest.approx([0.77, 0.78, 0.79, 0.80])
    assert rounds["relation_quality"].isna().tolist() == [True, False, False, False]
    assert rounds["bytes_up"].tolist() == [4_000_000] * 4
    assert set(rounds) == {"run", "algorithm", "dataset", "setting", "clients", "seed", *ROUND_COLUMNS}
    assert (rounds["seed"] == 3).all()


def test_a_real_run_is_read(tmp_path: Path) -> None:
    run = fedgkd.run("fedgkd", planted_federation(), out=tmp_path / "run", rounds=2, hidden=4, threads=1)
    (found,) = read_records(tmp_path).runs
    assert found.result["test_accuracy"] == run.result()["test_accuracy"]
    assert found.rounds["test_accuracy"][-1] == pytest.approx(run.result()["test_accuracy_last"])
    assert found.rounds["bytes_up"].sum() == run.result()["bytes_up"]
    assert {name: matrix.shape for name, matrix in found.relations().items()} == dict.fromkeys("RSQ", (2, 4, 4))
    clients = found.clients()
    assert clients is not None
    assert clients.names == run.federation.names
    assert clients.nodes == (60, 60, 60, 60)
    assert clients.labels.tolist() == [[15, 15, 15, 15]] * 4
    written = json.loads((tmp_path / "run" / "clients.json").read_text())
    assert [written[split] for split in ("train", "val", "test")] == [[20] * 4] * 3


def test_matrices_that_an_algorithm_does_not_have_are_left_out(tmp_path: Path) -> None:
    write_run(tmp_path / "run", relations=["Q"])
    (run,) = read_records(tmp_path).runs
    assert list(run.relations()) == ["Q"]


def test_a_run_without_clients_or_relations(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    (run,) = read_records(tmp_path).runs
    assert run.clients() is None
    assert run.relations() == {}


def test_runs_in_flight_are_counted_and_left_out(tmp_path: Path) -> None:
    write_run(tmp_path / "whole")
    (write_run(tmp_path / "half") / "result.json").unlink()
    records = read_records(tmp_path)
    assert [run.name for run in records.runs] == ["whole"]
    assert records.warnings == ["1 run is not finished and left out: half."]


def test_settings_alone_are_no_run(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "whole")
    (tmp_path / "config.toml").write_text("lr = 0.1\n")
    assert read_records(tmp_path).unfinished == ()


def test_hidden_folders_are_left_alone(tmp_path: Path) -> None:
    write_run(tmp_path / "whole")
    write_run(tmp_path / ".whole.tmp")
    assert len(read_records(tmp_path).runs) == 1


def test_failed_runs_and_their_reasons(tmp_path: Path) -> None:
    write_run(tmp_path / "whole")
    (write_run(tmp_path / "bad") / "result.json").unlink()
    (tmp_path / "early").mkdir()
    for name in ("bad", "early"):
        (tmp_path / name / "failed.json").write_text('{"error": "no memory"}')
    failed = read_records(tmp_path).failed
    assert [(run.name, run.error, run.settings.get("lr")) for run in failed] == [
        ("bad", "no memory", 0.01),
        ("early", "no memory", None),
    ]


def test_runs_know_their_study(tmp_path: Path) -> None:
    write_study(tmp_path / "tau", "tau", [0.1, 0.5])
    write_run(tmp_path / "tau" / "a", tau=0.1)
    write_run(tmp_path / "b")
    by_name = {run.name: run.study for run in read_records(tmp_path).runs}
    assert by_name["b"] is None
    assert by_name["tau/a"] is not None
    assert by_name["tau/a"].values == (0.1, 0.5)
    assert load_records(tmp_path).set_index("run")["study"]["tau/a"] == "tau"


def test_different_versions_get_a_warning(tmp_path: Path) -> None:
    for name, version in (("a", "0.1.0"), ("b", "0.2.0"), ("c", "0.2.0")):
        write_run(tmp_path / name, version=version)
    (warning,) = read_records(tmp_path).warnings
    assert warning == "The runs are of different versions of fedgkd: 0.1.0 (1), 0.2.0 (2); compare them with care."


# --- nothing to read ------------------------------------------------------------------------------------------------


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"there is no folder .*nowhere; give the one that"):
        read_records(tmp_path / "nowhere")


def test_no_runs(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no runs"):
        load_records(tmp_path)


def test_only_unfinished_runs(tmp_path: Path) -> None:
    (write_run(tmp_path / "half") / "result.json").unlink()
    with pytest.raises(RunError, match=r"no finished run \(1 unfinished\); go on with: fedgkd resume .*half"):
        load_records(tmp_path)


def test_only_failed_runs(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "failed.json").write_text('{"error": "no memory"}')
    with pytest.raises(RunError, match="no finished run: 1 failed, bad with: no memory"):
        load_records(tmp_path)


# --- damaged --------------------------------------------------------------------------------------------------------


def test_a_broken_result_is_named_with_its_line(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "result.json").write_text('{\n"algorithm": "fedgkd",\n"clients": \n}')
    with pytest.raises(RunError, match=r"run/result\.json, line 4, is not JSON"):
        read_records(tmp_path)


def test_a_result_of_something_else(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "result.json").write_text("[1]")
    with pytest.raises(RunError, match="holds no fields but a list"):
        read_records(tmp_path)
    (folder / "result.json").write_text('{"algorithm": "fedgkd"}')
    with pytest.raises(RunError, match=r"result.json has no dataset, setting, .* not of this version"):
        read_records(tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("test_accuracy", "high", 'test_accuracy cannot be "high"'),
        ("per_client", None, "per_client cannot be null"),
        ("per_client", [0.5], r"per_client cannot be \[0.5\]"),
        ("seed", 7, "config.toml is not that of the result beside it"),
    ],
)
def test_a_result_with_strange_figures(tmp_path: Path, field: str, value: object, sentence: str) -> None:
    write_run(tmp_path / "run", result={field: value})
    with pytest.raises(RunError, match=f"{sentence}; put back a copy of the file, or move the run"):
        read_records(tmp_path)


@pytest.mark.parametrize(
    ("line", "words"),
    [("{broken", "line 2, is not JSON"), ('{"round": 2}', "line 2, is not the record of a round")],
)
def test_a_broken_line_of_metrics_is_named(tmp_path: Path, line: str, words: str) -> None:
    folder = write_run(tmp_path / "run")
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    (folder / "metrics.jsonl").write_text("\n".join([lines[0], line, *lines[2:]]))
    with pytest.raises(RunError, match=rf"run/metrics\.jsonl, {words}"):
        load_rounds(tmp_path)


def test_a_comparison_without_a_finished_run(tmp_path: Path) -> None:
    (write_run(tmp_path / "a") / "result.json").unlink()
    with pytest.raises(RunError, match=f"go on with: fedgkd resume {tmp_path / 'a'}"):
        read_records(tmp_path)
    (tmp_path / "grid.json").write_text("{}")
    with pytest.raises(RunError, match=r"1 unfinished\); go on with: the command that began them \(see grid.json\)"):
        read_records(tmp_path)


def test_missing_rounds(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    (folder / "metrics.jsonl").write_text("\n".join(lines[:2]))
    with pytest.raises(RunError, match=r"metrics.jsonl has 2 rounds, but result.json speaks of 4"):
        load_rounds(tmp_path)
    (folder / "metrics.jsonl").unlink()
    with pytest.raises(RunError, match=r"metrics.jsonl is missing although the run is finished"):
        load_rounds(tmp_path)


def test_broken_settings(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "config.toml").write_text("lr = 0.1\nthis is not toml\n")
    with pytest.raises(RunError, match=r"run/config\.toml is not a TOML file: .*line 2"):
        read_records(tmp_path)


def test_broken_relations(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", relations="RSQ")
    (run,) = read_records(tmp_path).runs
    np.savez_compressed(folder / "relations.npz", **dict.fromkeys("RSQ", np.zeros((4, 2, 2), np.float32)))
    with pytest.raises(RunError, match=r"R is of shape \(4, 2, 2\), not \(4, 3, 3\)"):
        run.relations()
    (folder / "relations.npz").write_bytes(b"PK nonsense")
    with pytest.raises(RunError, match=r"relations.npz cannot be read"):
        run.relations()


def test_broken_clients(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", labels=[[1, 2]] * 3)
    (folder / "clients.json").write_text('{"names": []}')
    (run,) = read_records(tmp_path).runs
    with pytest.raises(RunError, match=r"clients.json does not say who the clients are"):
        run.clients()


def test_a_broken_study(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    (tmp_path / "study.json").write_text('{"study": "tau"}')
    with pytest.raises(RunError, match=r"study.json does not describe a study"):
        read_records(tmp_path)


# --- what it needs --------------------------------------------------------------------------------------------------


def test_reading_records_needs_no_torch(tmp_path: Path) -> None:
    write_run(tmp_path / "run", relations="RSQ", labels=[[1, 2]] * 3)
    code = (
        "import sys, pathlib, fedgkd\n"
        "from fedgkd.reporting.report import read_report\n"
        "from fedgkd.reporting.writing import write_report\n"
        "fedgkd.load_records(sys.argv[1])\n"
        "write_report(read_report(sys.argv[1]), pathlib.Path(sys.argv[2]))\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path, tmp_path / "out"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


# --- what nobody wrote ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{}", "result.json has no algorithm, dataset"),
        ("", "is not JSON"),
        ("[" * 100_000, "it is nested too deep"),
        ('{"seed": ' + "9" * 5000 + "}", "a number is too large"),
        ('{"seed": NaN}', "NaN is not a number"),
        ('{"seed": 1, "seed": 2}', "the key 'seed' stands there twice"),
        ("\ufeff{}", "is not JSON"),
        ("null", "holds no fields but a NoneType"),
    ],
)
def test_a_result_that_is_none(tmp_path: Path, text: str, sentence: str) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "result.json").write_text(text)
    with pytest.raises(RunError, match=sentence) as caught:
        read_records(tmp_path)
    assert str(folder / "result.json") in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("test_accuracy", 7.5),
        ("val_accuracy", -3),
        ("test_macro_f1", True),
        ("test_accuracy_weighted", [0.5]),
        ("per_client", [0.5, 7.5, 0.1]),
        ("per_client", [0.5, "x", 0.1]),
        ("per_client", {"0": 0.5, "1": 0.5, "2": 0.5}),
        ("client_names", ["a", "b"]),
        ("client_names", ["a", "b", 3]),
        ("client_names", ["a", "b", "c\n"]),
        ("clients", True),
        ("clients", 0),
        ("clients", 3.0),
        ("seed", -1),
        ("rounds", "4"),
        ("rounds", 0),
        ("best_round", -1),
        ("best_round_received", [3]),
        ("bytes_up", 1.5),
        ("bytes_down", -1),
        ("seconds", "1"),
        ("seconds", -0.5),
        ("dataset", ["cora"]),
        ("dataset", ""),
        ("setting", "a\nb"),
        ("algorithm", "x" * 100_000),
        ("versions", {"fedgkd": 1}),
        ("versions", []),
        ("parameters", "many"),
        ("chosen_by_validation", 1),
    ],
)
def test_figures_that_no_run_can_have(tmp_path: Path, field: str, value: object) -> None:
    write_run(tmp_path / "run", result={field: value})
    with pytest.raises(RunError, match=rf"run/result\.json: {field} cannot be ") as caught:
        read_records(tmp_path)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        ({"best_round": 5}, "best_round is 5, of 4 rounds"),
        ({"best_round_received": 9}, "best_round_received is 9, of 4 rounds"),
        ({"test_accuracy": 0.9}, "test_accuracy is 0.9, but the mean of per_client is 0.8"),
        ({"client_names": ["a", "a", "b"]}, "two of client_names are the same"),
    ],
)
def test_figures_that_contradict_each_other(tmp_path: Path, result: dict[str, object], sentence: str) -> None:
    write_run(tmp_path / "run", result=result)
    with pytest.raises(RunError, match=sentence):
        read_records(tmp_path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"round": 2}, "line 3, is the record of round 2, not of round 3"),
        ({"round": "3"}, r"line 3, is not the record of a round \(round has"),
        ({"selected": {"accuracy": {"test": 7.5}}}, "line 3, is not the record of a round"),
        ({"selected": []}, "line 3, is not the record of a round"),
        ({"present": "abc"}, r"\(present has"),
        ({"present": [0, 0, 1]}, r"\(present has"),
        ({"present": [0, 1, 3]}, r"\(present has"),
        ({"bytes_up": -1}, r"\(bytes_up or bytes_down has"),
        ({"bytes_up": "x"}, r"\(bytes_up or bytes_down has"),
        ({"loss": "low"}, r"\(loss has"),
        ({"seconds": {"total": -1}}, r"\(seconds has"),
        ({"seconds": 3}, "is not the record of a round"),
    ],
)
def test_a_round_that_cannot_be(tmp_path: Path, changes: dict[str, object], sentence: str) -> None:
    folder = write_run(tmp_path / "run")
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    lines[2] = json.dumps(json.loads(lines[2]) | changes)
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(RunError, match=sentence):
        load_rounds(tmp_path)


def test_an_accuracy_that_cannot_be_in_a_round(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    text = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(text.replace('"test": 0.8', '"test": -3.8', 1))
    with pytest.raises(RunError, match="test_accuracy_trained has a value"):
        load_rounds(tmp_path)


@pytest.mark.parametrize(
    "matrices",
    [
        dict.fromkeys("RSQ", np.full((4, 3, 3), np.inf, np.float32)),
        dict.fromkeys("RSQ", np.zeros((4, 3, 3))),
        dict.fromkeys("RSQ", np.zeros((4, 3, 3), "U3")),
        dict.fromkeys("RSQ", np.zeros((4, 3, 3), np.complex64)),
        {**dict.fromkeys("RS", np.zeros((4, 3, 3), np.float32)), "Q": np.full((4, 3, 3), 7.5, np.float32)},
        dict.fromkeys("RS", np.zeros((4, 3, 3), np.float32)),
    ],
    ids=["infinite", "of 64 bits", "text", "complex", "no weights", "one missing"],
)
def test_matrices_that_cannot_be(tmp_path: Path, matrices: dict[str, np.ndarray]) -> None:
    folder = write_run(tmp_path / "run")
    np.savez_compressed(folder / "relations.npz", **matrices)
    (run,) = read_records(tmp_path).runs
    with pytest.raises(RunError, match=r"relations\.npz"):
        run.relations()


@pytest.mark.parametrize(
    "changes",
    [
        {"names": ["a", "b", "c"]},
        {"nodes": [1, 2]},
        {"nodes": [1, 2, 3]},
        {"nodes": ["10", "10", "10"]},
        {"labels": [[9, 1], [1, 9]]},
        {"labels": [[9, 1], [1, 9], [8]]},
        {"labels": [[9, 1], [1, 9], [8, -2]]},
        {"labels": [[], [], []]},
        {"labels": [9, 1, 8]},
        {"class_names": ["one"]},
        {"class_names": [1, 2]},
    ],
)
def test_clients_that_cannot_be(tmp_path: Path, changes: dict[str, object]) -> None:
    folder = write_run(tmp_path / "run", labels=[[9, 1], [1, 9], [8, 2]])
    facts = json.loads((folder / "clients.json").read_text())
    (folder / "clients.json").write_text(json.dumps(facts | changes))
    (run,) = read_records(tmp_path).runs
    with pytest.raises(RunError, match=r"clients\.json does not say who the clients are"):
        run.clients()


@pytest.mark.parametrize("values", ["x", [[1]], [{}], None, ["a\n"]])
def test_a_study_that_cannot_be(tmp_path: Path, values: object) -> None:
    write_run(tmp_path / "run")
    (tmp_path / "study.json").write_text(json.dumps({"study": "tau", "setting": "tau", "values": values}))
    with pytest.raises(RunError, match=r"study\.json does not describe a study"):
        read_records(tmp_path)


@pytest.mark.parametrize("reason", [3, None, ["x"]])
def test_a_failure_without_a_reason(tmp_path: Path, reason: object) -> None:
    write_run(tmp_path / "run")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "failed.json").write_text(json.dumps({"error": reason}))
    with pytest.raises(RunError, match=r"failed\.json does not say why"):
        read_records(tmp_path)


def test_settings_that_cannot_be(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "config.toml").write_text((folder / "config.toml").read_text() + "tau = [1]\n")
    with pytest.raises(RunError, match=r"config\.toml: tau cannot be \[1\]"):
        read_records(tmp_path)


def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    with pytest.raises(RunError, match="File name too long"):
        read_records(tmp_path / ("x" * 300))
    (folder / "result.json").unlink()
    (folder / "result.json").mkdir()
    with pytest.raises(RunError, match=r"result\.json cannot be read \(it is a folder\)"):
        read_records(tmp_path)
    (folder / "result.json").rmdir()
    os.mkfifo(folder / "result.json")
    with pytest.raises(RunError, match=r"result\.json cannot be read \(it is not a file\)"):
        read_records(tmp_path)


def test_folders_as_deep_as_the_system_allows(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    runs = read_records(tmp_path).runs
    subprocess.run(["rm", "-r", tmp_path / "d"], check=True)  # shutil is not made for such depths
    assert len(runs) == 1
