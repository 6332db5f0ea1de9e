"""``fedgkd run``, ``resume`` and ``predict`` as a user types them, and everything that can go wrong."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from fedgkd.cli import app
from fedgkd.data.npz import save_graph
from fedgkd.data.own import write_federation
from fedgkd.experiments.directory import RunDirectory
from fedgkd.experiments.federations import build_federation
from fedgkd.experiments.model_file import PersonalModel
from fedgkd.experiments.runner import Run
from tests.data.files import write_tables
from tests.graphs import planted_federation, random_graph

TINY = ("hidden=8", "threads=1", "local_epochs=1")
FEDERATION = planted_federation(3, nodes=40)


def fedgkd(*args: str | Path) -> Result:
    found = CliRunner().invoke(app, [str(arg) for arg in args])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found


def ok(*args: str | Path) -> Result:
    found = fedgkd(*args)
    assert found.exit_code == 0, found.output
    return found


def error(*args: str | Path) -> str:
    """The one sentence that a command ends with."""
    found = fedgkd(*args)
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.startswith("error: ")
    assert found.stderr.count("\n") == 1
    return found.stderr.removeprefix("error: ").removesuffix("\n")


def command(*args: str | Path, before: str = "") -> list[str]:
    """The same in a process of its own; ``before`` is what that process does first."""
    return [sys.executable, "-c", f"{before}\nfrom fedgkd.cli import main; main()", *map(str, args)]


@pytest.fixture(scope="session")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("federation") / "graphs"
    write_federation(FEDERATION, folder)
    return folder


@pytest.fixture(scope="session")
def finished(graphs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three rounds."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    ok("run", "--graphs", graphs, "--rounds", "3", "--set", *TINY, "--out", folder)
    return folder


# --- run -------------------------------------------------------------------------------------------------------


def test_own_graphs(graphs: Path, tmp_path: Path) -> None:
    found = ok("run", "--graphs", graphs, "--rounds", "3", "--set", *TINY, "--out", tmp_path / "run")
    assert "fedgkd on planted, 3 clients, own-graphs, seed 0" in found.stdout
    assert "mean over clients, just-trained models" in found.stdout
    assert str(tmp_path / "run") in found.stdout
    assert sorted(path.name for path in (tmp_path / "run" / "models").iterdir()) == [
        f"client-{client}.safetensors" for client in range(3)
    ]


def test_a_generated_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --out the run gets a folder of its own below runs/, and a second one another."""
    monkeypatch.chdir(tmp_path)
    args = ("--dataset", "synthetic", "--clients", "3", "--seed", "1", "--rounds", "2")
    small = ("--synthetic", "num_nodes=90", "num_communities=3", "num_features=8", "--set", *TINY)
    name = "synthetic-3-non-overlapping-fedavg-seed1"
    for folder in (name, f"{name}-2"):
        result = json.loads(ok("run", "--algorithm", "fedavg", *args, *small, "--json").stdout)
        assert result["folder"] == f"runs/{folder}"
        assert (tmp_path / "runs" / folder / "result.json").exists()


def test_json_is_all_that_stands_on_stdout(graphs: Path, tmp_path: Path) -> None:
    found = ok("run", "--graphs", graphs, "--rounds", "2", "--set", *TINY, "--out", tmp_path / "run", "--json")
    result = json.loads(found.stdout)
    assert (result["algorithm"], result["clients"], result["rounds"]) == ("fedgkd", 3, 2)
    written = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result == written | {"folder": str(tmp_path / "run")}


def test_plain_lines_when_piped(graphs: Path, tmp_path: Path) -> None:
    found = ok("run", "--graphs", graphs, "--rounds", "20", "--set", *TINY, "patience=0", "--out", tmp_path / "run")
    lines = found.stderr.splitlines()
    assert [line.split()[1] for line in lines] == ["1/20", "10/20", "20/20"]
    for line in lines:
        words = line.split()
        assert (words[0], words[2], words[4], words[6]) == ("round", "loss", "val", "test")
        assert 0 <= float(words[5].removesuffix("%")) <= 100


def test_a_live_bar_on_a_terminal(graphs: Path, tmp_path: Path) -> None:
    """Stderr is a terminal, stdout is not."""
    args = ("run", "--graphs", graphs, "--rounds", "5", "--set", *TINY, "--out", tmp_path / "run", "--json")
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(command(*args), stdout=subprocess.PIPE, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        while chunk := _read_terminal(ours):
            shown += chunk
        assert process.stdout is not None
        assert json.loads(process.stdout.read())["rounds"] == 5
    os.close(ours)
    assert process.returncode == 0
    text = shown.decode()
    for part in ("round", "5/5", "loss", "val", "test", "left"):
        assert part in text


def _read_terminal(handle: int) -> bytes:
    try:
        return os.read(handle, 4096)
    except OSError:  # the other end is closed
        return b""


def test_explain_names_every_setting_with_value_origin_and_meaning(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("lr = 0.1\nrounds = 5\nseed = 3\n")
    args = ("run", "--explain", "--config", tmp_path / "own.toml", "--rounds", "7", "--set", "tau=0.2", "seed=4")
    rows = {row["setting"]: row for row in json.loads(ok(*args, "--json").stdout)}
    assert rows["lr"] == {
        "setting": "lr",
        "value": 0.1,
        "origin": str(tmp_path / "own.toml"),
        "meaning": "learning rate of Adam",
        "range": "above 0",
    }
    assert (rows["rounds"]["value"], rows["rounds"]["origin"]) == (7, "command line")
    assert (rows["seed"]["value"], rows["seed"]["origin"]) == (4, "--set")
    assert (rows["tau"]["value"], rows["tau"]["origin"]) == (0.2, "--set")
    assert rows["gamma"]["origin"] == "default"
    assert rows["x0_scale"]["value"] is None
    text = ok(*args).stdout
    assert "settings of fedgkd" in text
    assert all(name in text for name in rows)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ("--algorithm fedgdk", "there is no algorithm 'fedgdk'; did you mean 'fedgkd'?"),
        ("--set local_epoch=3", "--set: there is no setting 'local_epoch'; did you mean 'local_epochs'?"),
        ("--algorithm local --set identity_term=no", "--set: identity_term is a setting of fedgkd, not of local"),
        ("--set lr=fast", "lr must be a finite number, not 'fast'"),
        ("--set lr=-1", "lr must be above 0, not -1.0"),
        ("--set lr", "--set takes name=value, not 'lr'"),
        ("--rounds 0", "rounds must be at least 1, not 0"),
        ("--clients 0", "clients must be at least 1, not 0"),
        ("--seed -1", "seed must be at least 0, not -1"),
        ("--participation 1.5", "participation must be above 0 and at most 1, not 1.5"),
        ("--dropout-rate 1", "dropout_rate must be at least 0 and at most 0.99, not 1.0"),
        ("--select best", "select must be one of trained, client, midpoint, not 'best'"),
        ("--model transformer", "model must be one of gcn, sage, gat, gin, not 'transformer'"),
        ("--model gat --set hidden=6", "hidden must be a multiple of gat's 4 attention heads, not 6"),
        ("--device tpu9", "device must be cpu, cuda or cuda:N, not 'tpu9'"),
        ("--partition random", "partition must be one of non-overlapping, overlapping, louvain, shards, not 'random'"),
        ("--overlapping --partition louvain", "--overlapping and --partition louvain exclude each other"),
        ("--config nowhere.toml", "cannot read nowhere.toml: No such file or directory"),
        ("--graphs nowhere", "--graphs are used as they are: --dataset, --clients and --partition do not go with them"),
        ("--set graphs=nowhere", "nowhere: no such folder; expected one with a graph per client"),
        (
            "--set hidden=9000000000000",
            "there is not enough memory (Unable to allocate 72,036,000 GB for the models of 2 clients",
        ),
        ("--dataset nowhere", "'nowhere' is neither a dataset (cora, "),
        ("--synthetic num_node=5", "dataset 'synthetic' has no option 'num_node'; it takes num_nodes, "),
    ],
)
def test_mistakes_are_one_sentence(args: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ("--dataset", "synthetic", "--synthetic", "num_nodes=90", "num_communities=3", "--clients", "2")
    assert error("run", *small, *args.split()).startswith(sentence)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("args", ["--bogus", "--rounds many", "--clients"])
def test_options_that_the_parser_refuses(args: str) -> None:
    found = fedgkd("run", *args.split())
    assert found.exit_code == 2
    assert found.stdout == ""


def test_a_folder_that_holds_another_run(finished: Path, graphs: Path) -> None:
    before = (finished / "result.json").read_bytes()
    said = error("run", "--graphs", graphs, "--out", finished)
    assert said == f"{finished} already holds a run, which is finished; choose another --out for a new one"
    assert (finished / "result.json").read_bytes() == before


def test_a_folder_that_holds_something_else(graphs: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert error("run", "--graphs", graphs, "--out", tmp_path).endswith(
        "is not empty (notes.txt); choose another --out"
    )


def test_no_write_permission(graphs: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = error("run", "--graphs", graphs, "--set", *TINY, "--out", tmp_path / "file" / "run")
    assert said == f"cannot write to {tmp_path / 'file' / 'run'}: Not a directory"


def test_an_algorithm_of_ones_own_from_the_folder_where_it_is(tmp_path: Path) -> None:
    """As examples/new_algorithm.py says: the installed command does not search that folder by itself."""
    script = Path(sys.executable).with_name("fedgkd")
    examples = Path(__file__).parents[2] / "examples"
    args = ["run", "--algorithm", "new_algorithm:KeepAShare", "--set", "own_share=0.7", "--explain", "--json"]
    done = subprocess.run([script, *args], cwd=examples, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert {row["setting"]: row["value"] for row in json.loads(done.stdout)}["own_share"] == 0.7


# --- resume ----------------------------------------------------------------------------------------------------


def test_resume_of_a_finished_run_shows_its_result(finished: Path) -> None:
    found = ok("resume", finished, "--json")
    assert found.stderr == f"{finished} is finished\n"
    assert json.loads(found.stdout)["rounds"] == 3
    assert "test accuracy" in ok("resume", finished).stdout


def test_resume_of_a_run_that_was_stopped(finished: Path, tmp_path: Path) -> None:
    """A copy of the finished run without its end, and with half a line of a next round."""
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    with np.load(folder / "relations.npz") as stored:
        log = np.stack([stored[name] for name in ("R", "S", "Q")], axis=1).astype(np.float32)
    (folder / "relations.bin").write_bytes(log.tobytes())
    for path in (folder / "result.json", folder / "relations.npz"):
        path.unlink()
    with (folder / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"round": 4')
    found = ok("resume", folder, "--json")
    expected = json.loads((finished / "result.json").read_text())
    result = json.loads(found.stdout)
    for name in ("test_accuracy", "best_round", "rounds", "per_client", "bytes_up"):
        assert result[name] == expected[name]
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 3


def test_resume_where_no_run_is(tmp_path: Path) -> None:
    said = error("resume", tmp_path / "nothing")
    assert said == (
        f"{tmp_path / 'nothing'} holds no run (no config.toml); start one with: fedgkd run --out {tmp_path / 'nothing'}"
    )


def test_resume_of_a_changed_config(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    settings, directory = RunDirectory(finished).load_config(), RunDirectory(folder)
    directory.create(settings)
    stopped = Run(settings, build_federation(settings.run, None), directory)
    stopped.start()
    stopped.step()
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("\nlr = 0.01", "\nlr = 0.02"))
    assert error("resume", folder) == "config.toml has changed since the checkpoint (lr); start a new run instead"


def test_resume_when_the_graphs_are_gone(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "result.json").unlink()
    config = folder / "config.toml"
    lines = config.read_text().splitlines()
    config.write_text("\n".join('graphs = "/nowhere"' if line.startswith("graphs") else line for line in lines))
    assert error("resume", folder) == "/nowhere: no such folder; expected one with a graph per client"


@pytest.mark.parametrize("how", ["option", "--set", "--config"])
def test_relative_paths_are_known_from_anywhere(
    how: str, graphs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(graphs.parent)
    (tmp_path / "own.toml").write_text('graphs = "graphs"\n')
    args = {"option": ["--graphs", "graphs"], "--set": ["--set", "graphs=graphs"]}
    given = args.get(how, ["--config", str(tmp_path / "own.toml")])
    ok("run", *given, "--rounds", "1", "--set", *TINY, "--out", tmp_path / "run")
    assert f'graphs = "{graphs}"' in (tmp_path / "run" / "config.toml").read_text()


# --- stopped, or out of room -----------------------------------------------------------------------------------


def _wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_run_that_goes_on_is_left_alone(graphs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    args = ("run", "--graphs", graphs, "--rounds", "4000", "--set", *TINY, "patience=0", "--out", folder)
    with subprocess.Popen(command(*args), stderr=subprocess.DEVNULL) as process:
        _wait_for(folder / "checkpoint" / "state-0.json", process)
        process.send_signal(signal.SIGSTOP)  # at work, but never done
        for second in (("resume", folder), args):
            assert error(*second).startswith(f"another fedgkd is at work in {folder}; wait for it")
        process.kill()
    assert json.loads(ok("resume", folder, "--json").stdout)["rounds"] == 4000
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 4000


def stops_before_opening(name: str) -> str:
    """What a process does first so that it stops itself, once, before it opens a file whose name has that in it."""
    return (
        "import os, signal, sys\n"
        "def watch(event, args, met=[]):\n"
        f"    if event == 'open' and {name!r} in str(args[0]) and not met:\n"
        "        met.append(True)\n"
        "        os.kill(os.getpid(), signal.SIGSTOP)\n"
        "sys.addaudithook(watch)"
    )


def _wait_until_stopped(process: subprocess.Popen[str]) -> None:
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), status


def test_a_second_resume_leaves_a_run_alone_that_was_finished_while_it_got_ready(graphs: Path, tmp_path: Path) -> None:
    folder, pipe = tmp_path / "run", subprocess.PIPE
    args = ("run", "--graphs", graphs, "--rounds", "3", "--set", *TINY, "--out", folder)
    with subprocess.Popen(
        command(*args, before=stops_before_opening("relations.npz")), stdout=pipe, stderr=pipe, text=True
    ) as first:
        _wait_until_stopped(first)
        with subprocess.Popen(
            command("resume", folder, before=stops_before_opening(".lock")), stdout=pipe, stderr=pipe, text=True
        ) as second:
            _wait_until_stopped(second)
            first.send_signal(signal.SIGCONT)
            first.communicate(timeout=60)
            assert first.returncode == 0
            whole = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
            second.send_signal(signal.SIGCONT)
            shown, said = second.communicate(timeout=60)
    assert (second.returncode, said) == (0, f"{folder} is finished\n")
    assert "test accuracy" in shown
    assert {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == whole


def test_a_run_whose_folder_is_removed_ends_with_a_sentence(graphs: Path, tmp_path: Path) -> None:
    folder, pipe = tmp_path / "run", subprocess.PIPE
    args = ("run", "--graphs", graphs, "--rounds", "5000", "--set", *TINY, "patience=0", "--out", folder)
    with subprocess.Popen(command(*args), stdout=pipe, stderr=pipe, text=True) as process:
        _wait_for(folder / "checkpoint" / "state-0.json", process)
        folder.rename(tmp_path / "moved")  # at once, where a removal takes its time
        shutil.rmtree(tmp_path / "moved", ignore_errors=True)
        shown, said = process.communicate(timeout=60)
    assert (process.returncode, shown) == (2, "")
    last = said.splitlines()[-1]
    assert last.startswith("error: ")
    assert str(folder) in last
    assert "Traceback" not in said
    assert not folder.exists()


def test_ctrl_c_leaves_a_run_that_can_go_on(graphs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    args = ("run", "--graphs", graphs, "--rounds", "500", "--set", *TINY, "patience=0", "--out", folder)
    pipe = subprocess.PIPE
    with subprocess.Popen(command(*args), stdout=pipe, stderr=pipe, text=True) as process:
        _wait_for(folder / "checkpoint" / "state-0.json", process)
        process.send_signal(signal.SIGINT)
        shown, said = process.communicate(timeout=60)
    assert (process.returncode, shown) == (130, ""), said
    assert said.endswith(f"\nstopped; go on with: fedgkd resume {folder}\n")
    assert "Traceback" not in said
    done = len((folder / "metrics.jsonl").read_text().splitlines())
    assert 1 <= done < 500
    assert json.loads(ok("resume", folder, "--json").stdout)["rounds"] == 500


@pytest.mark.parametrize(
    ("room", "where"), [(5_000, "cannot write the checkpoint "), (30_000, "cannot write to "), (100, "cannot write ")]
)
def test_a_full_disk_is_one_sentence_and_the_run_can_go_on(
    room: int, where: str, graphs: Path, finished: Path, tmp_path: Path
) -> None:
    """No file may grow beyond ``room`` bytes: the first checkpoint, a later record, or the config do not fit."""
    folder = tmp_path / "run"
    args = ("run", "--graphs", graphs, "--rounds", "12", "--set", *TINY, "patience=0", "--out", folder)
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))"
    done = subprocess.run(command(*args, before=limit), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    *_, last = done.stderr.splitlines()
    assert last.startswith(f"error: {where}{folder}")
    assert last.endswith("File too large")
    assert "Traceback" not in done.stderr
    if room > 100:
        result = json.loads(ok("resume", folder, "--json").stdout)
        assert result["rounds"] == 12
        assert not list(folder.rglob(".*")), "nothing half-written stays behind"
    else:
        assert not folder.exists() or not list(folder.iterdir())


# --- verify ----------------------------------------------------------------------------------------------------


def test_verify_says_what_is_whole_and_what_is_damaged(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    assert ok("verify", folder).stdout == f"{folder}: 0 problems; whole: 8 files, 1 finished runs\n"
    model = folder / "models" / "client-1.safetensors"
    assert ok("verify", model).stdout == f"{model}: 0 problems; whole: 1 models\n"
    data = model.read_bytes()
    model.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    found = fedgkd("verify", folder)
    sentence = f"{model} is damaged: its SHA-256 is not the one in SHA256SUMS"
    assert (found.exit_code, found.stdout.splitlines()[0]) == (2, sentence)
    found = fedgkd("verify", tmp_path, "--json")
    assert (found.exit_code, json.loads(found.stdout)["problems"]) == (2, [sentence])
    said = error("predict", "--model", model, "--graph", folder)
    assert said == f"{model} is not a model file of fedgkd, or is damaged"


def test_a_damaged_result_is_no_reason_to_delete_anything(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    result = folder / "result.json"
    result.write_text(result.read_text().replace("0", "1", 1))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for args in (("resume", folder), ("report", folder)):
        said = error(*args)
        assert said.startswith(f"{result} is damaged: its SHA-256 is not the one in SHA256SUMS; put back a copy")
        assert not re.search("delete|remove", said)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


# --- predict ---------------------------------------------------------------------------------------------------


@pytest.fixture
def model(finished: Path) -> Path:
    return finished / "models" / "client-1.safetensors"


def test_predictions_on_stdout(model: Path, tmp_path: Path) -> None:
    graph = FEDERATION.graphs[1]
    save_graph(tmp_path / "mine.npz", graph)
    found = ok("predict", "--model", model, "--graph", tmp_path / "mine.npz")
    rows = list(csv.DictReader(found.stdout.splitlines()))
    expected = PersonalModel.load(model).probabilities(graph)
    assert list(rows[0]) == ["node", "class", "p_0", "p_1", "p_2", "p_3"]
    assert [int(row["node"]) for row in rows] == list(range(40))
    assert [int(row["class"]) for row in rows] == expected.argmax(1).tolist()
    np.testing.assert_allclose([[float(row[f"p_{k}"]) for k in range(4)] for row in rows], expected, atol=1e-6)
    accuracy = (expected.argmax(1) == graph.y).mean()
    assert found.stderr == f"accuracy on the 40 nodes with a label: {accuracy:.2%}\n"


def test_predictions_to_a_file(model: Path, tmp_path: Path) -> None:
    save_graph(tmp_path / "mine.npz", FEDERATION.graphs[1])
    found = ok("predict", "--model", model, "--graph", tmp_path / "mine.npz", "--out", tmp_path / "out" / "p.csv")
    assert found.stdout == ""
    assert found.stderr.startswith(f"40 nodes classified: {tmp_path / 'out' / 'p.csv'}\n")
    on_screen = ok("predict", "--model", model, "--graph", tmp_path / "mine.npz").stdout
    assert (tmp_path / "out" / "p.csv").read_text() == on_screen


def test_a_graph_without_labels_and_splits(model: Path, tmp_path: Path) -> None:
    graph = FEDERATION.graphs[1]
    np.savez(tmp_path / "bare.npz", x=graph.x, edge_index=graph.edge_index)
    save_graph(tmp_path / "mine.npz", graph)
    bare, full = (ok("predict", "--model", model, "--graph", tmp_path / f"{name}.npz") for name in ("bare", "mine"))
    assert bare.stdout == full.stdout
    assert bare.stderr == ""


def test_tables_with_names(tmp_path: Path) -> None:
    """Trained on tables, predicted for a table without labels: nodes and classes keep their names."""
    for client in ("north", "south"):
        write_tables(tmp_path / "graphs" / client, "rgrgrgrgrgrg", features="a,b")
    ok("run", "--graphs", tmp_path / "graphs", "--rounds", "1", "--set", *TINY, "--out", tmp_path / "run")
    model = tmp_path / "run" / "models" / "client-0.safetensors"
    write_tables(tmp_path / "new", "rg", features="a,b")
    nodes = tmp_path / "new" / "nodes.csv"
    nodes.write_text("id,a,b\nn0,0.1,0.2\nn1,0.3,0.4\n")
    found = ok("predict", "--model", model, "--graph", tmp_path / "new")
    rows = list(csv.DictReader(found.stdout.splitlines()))
    assert [row["node"] for row in rows] == ["n0", "n1"]
    assert list(rows[0]) == ["node", "class", "p_g", "p_r"]
    assert {row["class"] for row in rows} <= {"g", "r"}
    nodes.write_text("id,a,c\nn0,0.1,0.2\nn1,0.3,0.4\n")
    said = error("predict", "--model", model, "--graph", tmp_path / "new")
    assert said.endswith("feature column 1 is 'c', but the model knows it as 'b'")


def test_features_that_do_not_fit(model: Path, tmp_path: Path) -> None:
    save_graph(tmp_path / "mine.npz", random_graph(features=5))
    said = error("predict", "--model", model, "--graph", tmp_path / "mine.npz")
    assert said.endswith("has 5 feature columns, but the model was trained on 16")


def test_files_that_are_not_there_or_something_else(model: Path, tmp_path: Path) -> None:
    save_graph(tmp_path / "mine.npz", FEDERATION.graphs[1])
    graph = tmp_path / "mine.npz"
    assert "No such file" in error("predict", "--model", tmp_path / "none", "--graph", graph)
    assert "is not a model file of fedgkd" in error("predict", "--model", graph, "--graph", graph)
    assert "none.npz" in error("predict", "--model", model, "--graph", tmp_path / "none.npz")
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(model.read_bytes()[:200])
    assert "damaged" in error("predict", "--model", damaged, "--graph", graph)


def test_predictions_that_cannot_be_written(model: Path, tmp_path: Path) -> None:
    save_graph(tmp_path / "mine.npz", replace(FEDERATION.graphs[1], y=np.full(40, -1), train_mask=None, val_mask=None,
                                              test_mask=None))  # fmt: skip
    (tmp_path / "file").write_text("")
    out: Any = tmp_path / "file" / "p.csv"
    assert error("predict", "--model", model, "--graph", tmp_path / "mine.npz", "--out", out).startswith(
        f"cannot write {out}: "
    )
