"""Where settings come from, which one wins, and what is said about wrong ones."""

from __future__ import annotations

import dataclasses
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedgkd.algorithms import ALGORITHMS, FedGKD
from fedgkd.collaboration import KERNELS
from fedgkd.errors import SettingError
from fedgkd.experiments.config import find_algorithm, make_config, parse_assignments, read_config_file

OWN = """
from dataclasses import dataclass
from fedgkd.algorithms import FedAvg
from fedgkd.algorithms.fedavg import FedAvgSettings
from fedgkd.settings import setting

@dataclass(frozen=True)
class OwnSettings(FedAvgSettings):
    limit: int | None = setting(5, "a number or none", low=1)

class Own(FedAvg):
    Settings = OwnSettings

class Stranger: ...

class Half(FedAvg.__base__):
    Settings = OwnSettings

class Strange(FedAvg):
    Settings = dict
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module in the folder where the program runs, which is not on the path that Python searches."""
    (tmp_path / "own_algorithm.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield "own_algorithm"
    sys.modules.pop("own_algorithm", None)


def test_later_sources_win_and_origins_are_known() -> None:
    config = make_config(
        ("file.toml", {"lr": 0.1, "rounds": 7, "seed": 1}),
        ("command line", {"rounds": 8, "clients": 3}),
        ("--set", {"rounds": "9"}),
    )
    assert (config.run.rounds, config.run.seed, config.run.clients, config.method.lr) == (9, 1, 3, 0.1)
    assert config.origins == {"lr": "file.toml", "rounds": "--set", "seed": "file.toml", "clients": "command line"}
    assert config.values()["patience"] == 20  # a default has no origin


def test_defaults_are_fedgkd_on_cora_with_ten_clients() -> None:
    config = make_config()
    assert (config.run.algorithm, config.run.dataset, config.run.clients) == ("fedgkd", "cora", 10)
    assert config.algorithm is FedGKD


def test_the_algorithm_decides_which_settings_there_are() -> None:
    assert "tau_s" in make_config().values()
    assert "tau_s" not in make_config(("test", {"algorithm": "local"})).values()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_algorithm_has_a_setting_of_the_run(name: str) -> None:
    config = make_config(("test", {"algorithm": name}))
    names = [entry.name for entry in config.fields()]
    assert len(names) == len(set(names))
    assert all(entry.metadata.get("meaning") for entry in config.fields()), "every setting says what it means"


ISSUE = (
    "local_epochs lr weight_decay proximal dropout nodes_per_class distill_steps distill_lr gamma tau_g x0_scale tau "
    "tau_s identity_term kernel task_feature distillation participation dropout_rate select seed device threads "
    "patience"
)


@pytest.mark.parametrize("name", ISSUE.split())
def test_settings_have_the_names_that_people_guess(name: str) -> None:
    assert name in make_config().values()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"local_epoch": 3}, "there: there is no setting 'local_epoch'; did you mean 'local_epochs'?"),
        ({"overlapping": True}, "there: there is no setting 'overlapping'; `fedgkd run --explain` lists them all"),
        ({"taus": 3}, "there: there is no setting 'taus'; did you mean 'tau_s'?"),
        ({"zzzz": 1}, "there: there is no setting 'zzzz'"),
        ({"algorithm": "local", "identity_term": 1}, "there: identity_term is a setting of fedgkd, not of local"),
        ({"algorithm": "fedgdk"}, "there is no algorithm 'fedgdk'; did you mean 'fedgkd'?"),
        ({"rounds": 0}, "rounds must be at least 1, not 0"),
        ({"participation": 0}, "participation must be above 0 and at most 1, not 0.0"),
        ({"dropout_rate": 1}, "dropout_rate must be at least 0 and at most 0.99, not 1.0"),
        ({"kernel": "rbf"}, f"kernel must be one of {', '.join(KERNELS)}, not 'rbf'"),
        (
            {"partition": "random"},
            "partition must be one of non-overlapping, overlapping, louvain, shards, not 'random'",
        ),
        ({"threads": 100_000}, "threads must be at least 0 and at most 1024, not 100000"),
        ({"val_ratio": 0}, "val_ratio must be above 0 and at most 1, not 0.0"),
        ({"train_ratio": 0.9}, "train_ratio, val_ratio and test_ratio add up to more than 1"),
        ({"lr": "fast"}, "lr must be a finite number, not 'fast'"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError) as caught:
        make_config(("there", settings))
    assert str(caught.value).startswith(sentence)


def test_an_unknown_algorithm_that_resembles_none_lists_them_all() -> None:
    with pytest.raises(SettingError, match=r"there is no algorithm 'xyz'; known are fedgkd, local, .*module:Class"):
        find_algorithm("xyz")


def test_a_module_that_is_no_python_is_named_with_its_line(own_module: str, tmp_path: Path) -> None:
    (tmp_path / f"{own_module}.py").write_text("import fedgkd\nclass Own(:\n")
    with pytest.raises(
        SettingError, match=r"algorithm 'own_algorithm:Own': .*own_algorithm.py, line 2: invalid syntax"
    ):
        find_algorithm(f"{own_module}:Own")


def test_toml_round_trip_is_complete(tmp_path: Path) -> None:
    changed = {"algorithm": "fedgkd", "lr": 0.1, "x0_scale": None, "synthetic": 'a="b" \\ #', "identity_term": False}
    config = make_config(("test", changed))
    file = tmp_path / "config.toml"
    file.write_text(config.to_toml(), encoding="utf-8")
    assert set(tomllib.loads(config.to_toml())) == set(config.values())
    again = make_config((str(file), read_config_file(file)))
    assert again == config
    assert again.values() == config.values()
    assert "  # learning rate of Adam" in config.to_toml()


def test_none_survives_even_where_it_is_not_the_default(own_module: str, tmp_path: Path) -> None:
    config = make_config(("test", {"algorithm": f"{own_module}:Own", "limit": None}))
    (tmp_path / "config.toml").write_text(config.to_toml(), encoding="utf-8")
    assert make_config(("file", read_config_file(tmp_path / "config.toml"))).method.limit is None


def test_an_algorithm_of_ones_own_is_found_where_the_program_runs(own_module: str) -> None:
    config = make_config(("test", {"algorithm": f"{own_module}:Own", "limit": "7", "weighting": "train_nodes"}))
    assert config.algorithm.__name__ == "Own"
    assert (config.method.limit, config.method.weighting) == (7, "train_nodes")
    with pytest.raises(SettingError, match="limit must be at least 1, not 0"):
        dataclasses.replace(config.method, limit=0)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise KeyError('no data')", r"KeyError: 'no data'"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def f(): f()\nf()", "RecursionError: maximum recursion depth exceeded"),
        ("raise ValueError('two\\nlines')", r"ValueError: two\nlines"),
    ],
)
def test_a_module_that_raises_when_it_is_imported(own_module: str, code: str, reason: str) -> None:
    Path("own_algorithm.py").write_text(code)
    with pytest.raises(SettingError) as caught:
        find_algorithm("own_algorithm:Own")
    assert str(caught.value) == f"algorithm 'own_algorithm:Own': the module raises {reason}, when imported"


def test_a_setting_or_option_is_given_once() -> None:
    with pytest.raises(SettingError, match="--set has 'lr' twice; give it one value"):
        parse_assignments(["lr=0.1", "lr=0.2"])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("lr = 1e999", "a number is too large"),
        ("rounds = " + "9" * 5000, "is not a TOML file"),
        ("rounds = 0x" + "f" * 5000, "a number is too large"),
        ("a = " + "[" * 1000 + "]" * 1000, "is not a TOML file: it is nested too deep"),
        ("lr = nan", "is not a TOML file: a number is too large"),
        ("lr = 1\nlr = 2", "is not a TOML file"),
    ],
)
def test_config_files_that_go_too_far(tmp_path: Path, content: str, sentence: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(content)
    with pytest.raises(SettingError) as caught:
        read_config_file(file)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("own_algorithm:Nobody", "algorithm 'own_algorithm:Nobody': own_algorithm has no class Nobody"),
        ("own_algorithm:Stranger", "algorithm 'own_algorithm:Stranger': Stranger is not a subclass of fedgkd.Algo"),
        ("no_such_module:X", "algorithm 'no_such_module:X': the module cannot be imported (No module named"),
        (":X", "there is no algorithm ':X'"),
        ("own_algorithm:", "there is no algorithm 'own_algorithm:'"),
        (".own_algorithm:Own", "there is no algorithm '.own_algorithm:Own'"),
        ("own_algorithm..x:Own", "there is no algorithm 'own_algorithm..x:Own'"),
        ("own\0algorithm:Own", r"there is no algorithm 'own\x00algorithm:Own'"),
        ("x" * 300 + ":Own", f"algorithm '{'x' * 79}…': the module cannot be imported (No module named '{'x' * 79}…"),
        (
            "own_algorithm:Half",
            "algorithm 'own_algorithm:Half': Half is abstract: it does not define client_step",
        ),
        ("own_algorithm:Strange", "algorithm 'own_algorithm:Strange': Strange has no dataclass Settings derived from"),
        ("fedgkd:Algorithm", "algorithm 'fedgkd:Algorithm': Algorithm is abstract: it does not define client_step"),
        ("fedgkd:__doc__", "algorithm 'fedgkd:__doc__': __doc__ is not a subclass of fedgkd.Algorithm"),
    ],
)
def test_what_is_wrong_with_an_algorithm_of_ones_own(own_module: str, name: str, sentence: str) -> None:
    with pytest.raises(SettingError) as caught:
        find_algorithm(name)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"lr = ", "is not a TOML file: "),
        (b"\xff\xfe", "is not a TOML file: "),
        (b"[training]\nlr = 0.1", "training is a table or list; settings are plain `name = value` lines"),
        (b"lr = [0.1, 0.2]", "lr is a table or list"),
        (None, "No such file or directory"),
    ],
)
def test_config_files_that_cannot_be_used(tmp_path: Path, content: bytes | None, sentence: str) -> None:
    file = tmp_path / "own.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingError) as caught:
        read_config_file(file)
    assert str(file) in str(caught.value)
    assert sentence in str(caught.value)


def test_assignments() -> None:
    assert parse_assignments(["lr=0.1", "synthetic=a=b", " seed = 3"]) == {
        "lr": "0.1",
        "synthetic": "a=b",
        "seed": " 3",
    }
    for wrong in ("lr", "=3"):
        with pytest.raises(SettingError, match=f"--set takes name=value, not '{wrong}'"):
            parse_assignments([wrong])
