"""``fedgkd federation`` as people type it: one sentence and a code for every mistake."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from fedgkd.cli import app
from fedgkd.cli.federation import status_table
from fedgkd.data.npz import save_graph
from fedgkd.federation.plan import read_plan
from tests.graphs import random_graph

INIT = ("init", "--name", "demo", "--sites", "north", "south", "--host", "localhost")


def federation(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["federation", *map(str, arguments)])
    return done.exit_code, done.output


def test_init_makes_kits_that_say_what_was_asked_for(tmp_path: Path) -> None:
    save_graph(tmp_path / "like.npz", random_graph())
    options = ("--like", tmp_path / "like.npz", "--algorithm", "fedper", "--rounds", "7", "--min-sites", "2")
    code, output = federation(*INIT, "--out", tmp_path / "kits", *options, "--set", "hidden=8", "lr=0.1")
    assert code == 0, output
    plan = read_plan(tmp_path / "kits" / "north")
    assert plan.settings == {"algorithm": "fedper", "rounds": 7, "hidden": 8, "lr": 0.1}
    assert (plan.rules.features, plan.classes, plan.rules.min_sites) == (6, 3, 2)


def test_init_needs_no_sizes_but_then_says_what_is_left_to_do(tmp_path: Path) -> None:
    code, output = federation(*INIT, "--out", tmp_path / "kits")
    assert code == 0
    assert "write the numbers of features and classes into the federation.toml of every kit" in output
    code, output = federation("serve", "--kit", tmp_path / "kits" / "coordinator")
    assert code == 2
    assert "does not say the number of features" in output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--set", "hiden=8"), "did you mean"),
        (("--algorithm", "centralised"), "sees all graphs at once"),
        (("--min-sites", "3"), "min_sites is 3, but there are 2 sites"),
        (("--port", "0"), "port must be"),
        (("--classes", "many"), "takes their number or at least two names"),
        (("--like", "nowhere.npz"), "nowhere.npz"),
        (("--set", "rounds=1000000000000"), "rounds must be at most 10,000,000 in a federation"),
        (("--features", "6", "--classes", "3", "--set", "hidden=1000000"), "GB of memory, but there are"),
    ],
)
def test_init_names_a_mistake_and_leaves_nothing_behind(
    options: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    code, output = federation(*INIT, "--out", tmp_path / "kits", *options)
    assert code == 2
    assert sentence in output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["serve", "start", "status", "stop"])
def test_a_folder_that_is_no_kit_is_named(verb: str, tmp_path: Path) -> None:
    code, output = federation(verb, "--kit", tmp_path)
    assert code == 2
    assert "is not a kit" in output


def test_check_tells_what_is_fine_until_something_is_not(tmp_path: Path) -> None:
    save_graph(tmp_path / "own.npz", random_graph())
    save_graph(tmp_path / "other.npz", random_graph(features=5))
    federation(*INIT, "--out", tmp_path / "kits", "--like", tmp_path / "own.npz", "--port", "1")
    code, output = federation("check", "--kit", tmp_path / "kits" / "north", "--graph", tmp_path / "own.npz")
    assert code == 2
    assert "certificate: north, valid until" in output
    assert "graph: 12 nodes, 6 features, 3 classes, as agreed" in output
    assert "cannot reach the coordinator at localhost:1" in output
    assert "federation: fedgkd, at most 100 rounds; this machine has room for the model" in output
    code, output = federation("check", "--kit", tmp_path / "kits" / "north", "--graph", tmp_path / "other.npz")
    assert code == 2
    assert "has 5 feature columns, but the federation agreed on 6" in output


def test_renew_makes_new_kits(tmp_path: Path) -> None:
    federation(*INIT, "--out", tmp_path / "kits")
    code, _ = federation("renew", tmp_path / "kits", "--out", tmp_path / "new")
    assert code == 0
    assert (tmp_path / "new" / "north" / "startup" / "client.crt").exists()


def test_without_the_extra_the_command_says_how_to_get_it(tmp_path: Path) -> None:
    script = "import sys; sys.modules['nvflare'] = None\nfrom fedgkd.cli import main\nmain()"
    command = [sys.executable, "-c", script, "federation", *INIT, "--out", str(tmp_path / "kits")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: a real federation needs NVIDIA FLARE: pip install 'fedgkd[federation]'\n"


def test_the_status_table_shows_what_is_known() -> None:
    from rich.console import Console

    site = {"site": "north", "round": 3, "accuracy": 0.5, "seen": None, "bytes_up": 2_000_000, "bytes_down": 0}
    hidden = site | {"site": "south", "accuracy": None, "remark": "late: no answer within 9 s", "whereabouts": "here"}
    blocked = site | {"site": "west", "whereabouts": "blocked"}
    starting = site | {"site": "east", "whereabouts": "starting"}
    status = {
        "name": "demo",
        "algorithm": "fedgkd",
        "finished": False,
        "round": 3,
        "rounds": 9,
        "sites": [site, hidden, blocked, starting],
        "waiting": "waiting for east (starting); here: south",
    }
    console = Console(width=160)
    with console.capture() as captured:
        console.print(status_table(status, dict.fromkeys(("south", "east"), 0.0), ("north", "south", "west", "east")))
        console.print(status_table(None, {}, ("north", "south")))
    shown = captured.get()
    for text in (
        "demo: fedgkd, round 3 of 9, training",
        "50.0%",
        "2.00 MB",
        "not connected",
        "late: no answer within 9 s",
        "blocked",
        "starting",
        "waiting for east (starting); here: south",
        "not started yet",
    ):
        assert text in shown


@pytest.mark.parametrize(("reason", "code"), [(None, 0), ("late: no answer within 10 s", 3)])
def test_start_ends_with_a_code_of_its_own_if_a_site_was_left_out(
    reason: str | None, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is tested where it is; here it has come back."""
    from fedgkd.cli import federation as module
    from fedgkd.federation.admin import Driver

    rows = [{"site": "north", "left_out": None}, {"site": "south", "left_out": reason}]
    agreed = SimpleNamespace(plan=SimpleNamespace(check_settings=lambda: None))
    monkeypatch.setattr(module, "_admin", lambda kit: nullcontext(SimpleNamespace(kit=agreed)))
    monkeypatch.setattr(Driver, "run", lambda driver: {"round": 9, "sites": rows})
    ended, output = federation("start", "--kit", "anywhere")
    assert ended == code
    assert "finished after 9 rounds" in output
    assert ("south was left out and has no model: late: no answer within 10 s" in output) == (code == 3)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [("rounds = 1e30", "rounds must be"), ("hidden = 1e9", "hidden must be at most 1,000,000")],
)
def test_every_party_refuses_a_file_that_asks_for_the_impossible(line: str, sentence: str, tmp_path: Path) -> None:
    save_graph(tmp_path / "own.npz", random_graph())
    federation(*INIT, "--out", tmp_path / "kits", "--like", tmp_path / "own.npz", "--port", "1")
    for party, verb, options in (
        ("north", "check", ("--graph", tmp_path / "own.npz")),
        ("north", "join", ("--graph", tmp_path / "own.npz")),
        ("coordinator", "serve", ()),
    ):
        path = tmp_path / "kits" / party / "federation.toml"
        path.write_text(path.read_text().partition("[settings]")[0] + f"[settings]\nalgorithm = 'fedavg'\n{line}\n")
        code, output = federation(verb, "--kit", tmp_path / "kits" / party, *options)
        assert code == 2
        assert sentence in output
        assert "Traceback" not in output
