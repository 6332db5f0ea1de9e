"""Flags that take several values, and values of the synthetic dataset."""

import pytest

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
