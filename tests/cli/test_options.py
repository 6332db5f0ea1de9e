"""Flags that take several values, and values of the synthetic dataset."""

import shlex

import pytest
from typer.testing import CliRunner

from fedgkd.cli import app
from fedgkd.cli.options import complete_dataset, complete_setting, repeat_flags, synthetic_options
from fedgkd.errors import SettingError


@pytest.mark.parametrize(
    ("typed", "parsed"),
    [
        ("cora --clients 5", "cora --clients 5"),
        ("cora --clients 5 10 20", "cora --clients 5 --clients 10 --clients 20"),
        ("cora --clients=5 10", "cora --clients=5 --clients 10"),
        ("--clients 5 --clients 10 20 --json", "--clients 5 --clients 10 --clients 20 --json"),
        ("--clients 5 10 --seed 3 cora", "--clients 5 --clients 10 --seed 3 cora"),
        ("--clients 5 10 --json cora", "--clients 5 --clients 10 --json cora"),
        ("--clients 5 10 -- cora pubmed", "--clients 5 --clients 10 -- cora pubmed"),
        ("-- --clients 5 10", "-- --clients 5 10"),
        ("-n 5 10 -", "-n 5 -n 10 -n -"),
        ("cora pubmed", "cora pubmed"),
        ("", ""),
    ],
)
def test_several_values_after_one_flag(typed: str, parsed: str) -> None:
    assert list(repeat_flags(typed.split(), {"--clients", "-n"})) == parsed.split()


def test_synthetic_values_get_their_types() -> None:
    found = synthetic_options(["num_nodes=50", "homophily=1", "unknown=x"])
    assert found == {"num_nodes": 50, "homophily": 1.0, "unknown": "x"}
    assert [type(value) for value in found.values()] == [int, float, str]
    assert synthetic_options(None) == {}


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("num_nodes", "--synthetic takes KEY=VALUE, not 'num_nodes'"),
        ("num_nodes=5.5", "'5.5' is not a whole number"),
        ("homophily=high", "'high' is not a number"),
    ],
)
def test_bad_synthetic_values(pair: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        synthetic_options([pair])


def test_completions() -> None:
    assert complete_dataset("c") == ["cora", "citeseer", "computers", "citation"]
    assert complete_setting("") == ["non-overlapping", "overlapping", "louvain", "shards"]


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("run --clients 1_000", "--clients must be a whole number, not '1_000'"),
        ("run --clients=５", "--clients must be a whole number, not '５'"),
        ("run --clients 5.0", "--clients must be a whole number, not '5.0'"),
        ("compare --out x --clients 5 1_0", "--clients must be a whole number, not '1_0'"),
        ("run --participation nan", "--participation must be a finite number, not 'nan'"),
        ("run --participation 1e400", "--participation must be a finite number, not '1e400'"),
        ("partition synthetic --clients 2 --out x --ratios 0.3 inf 0.1", "--ratios must be a finite number, not 'inf'"),
        ("tune --algorithm local --out x --trials ''", "an argument is empty; leave its option out, or give it"),
        ("run --out ' '", "an argument is empty"),
        ("federation join --kit x --graph y --threads 0x2", "--threads must be a whole number, not '0x2'"),
        ("compare --out x --seeds 0", "Invalid value for '--seeds': "),
        (f"run --{'x' * 300}", f"No such option: --{'x' * 77}…"),
        (f"{'x' * 300}", f"No such command '{'x' * 79}…"),
    ],
)
def test_what_the_parser_refuses_is_one_sentence_too(typed: str, sentence: str) -> None:
    found = CliRunner().invoke(app, shlex.split(typed))
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.startswith(f"error: {sentence}")
    assert found.stderr.count("\n") == 1
