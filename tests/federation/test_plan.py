"""The federation file."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgkd.data.npz import save_graph
from fedgkd.errors import DataError, FederationError, SettingError
from fedgkd.experiments import hardware
from fedgkd.federation.plan import FILE, Plan, Rules, read_plan
from tests.graphs import random_graph

RULES = Rules(name="demo", host="example.org", features=6)
PLAN = Plan(RULES, ("north", "south"), 3, {"algorithm": "fedper", "rounds": 5, "hidden": 8})


def test_the_file_says_what_the_plan_says(tmp_path: Path) -> None:
    for plan in (
        PLAN,
        replace(PLAN, classes=("ham", "spam", 'so-"so"')),
        replace(PLAN, settings={}, blocked=("south",)),
    ):
        plan.write(tmp_path)
        assert read_plan(tmp_path) == plan


def test_every_line_of_the_file_says_what_it_means(tmp_path: Path) -> None:
    PLAN.write(tmp_path)
    lines = (tmp_path / FILE).read_text().partition("[settings]")[0].splitlines()
    assert all("  # " in line for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"sites": ()}, "at least one site"),
        ({"sites": ("north", "North")}, "two sites have the same name"),
        ({"sites": ("north", "a b")}, "letters, digits and hyphens"),
        ({"sites": ("north", "admin")}, "stands for something else"),
        ({"blocked": ("nort",)}, "there is no site 'nort'.*north"),
        ({"classes": ("a", "a")}, "a name is there twice"),
        ({"classes": ("a", "")}, "a name is empty"),
        ({"rules": replace(RULES, min_sites=3)}, "min_sites is 3, but there are 2 sites"),
        ({"settings": {"device": "cuda"}}, "device is each party's own business"),
    ],
)
def test_what_no_federation_can_have_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        replace(PLAN, **change)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"algorithm": "centralised"}, "sees all graphs at once"),
        ({"participation": 0.5}, "a setting of simulations"),
        ({"concepts": 2}, "a setting of simulations"),
        ({"train_per_client": 20}, "a setting of simulations"),
        ({"hiden": 8}, "did you mean"),
        ({"rounds": 0}, "rounds must be at least 1"),
    ],
)
def test_settings_that_no_federation_can_have_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        _ = replace(PLAN, settings=settings).config


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name = ", "is not a TOML file"),
        ("name = " + "[" * 100_000, "is not a TOML file"),
        ("port = " + "9" * 5_000, "is not a TOML file"),
        ("sites = 3", "sites must be a list of names"),
        ("sites = ['a']\nclasses = -1", "classes must be a number or a list of names"),
        ("sites = ['a']\nclases = 3", "there is no 'clases'.*classes"),
        ("sites = ['a']\nport = 99999", "port must be"),
        ("sites = ['a']\n[settings.deep]\nx = 1", "settings must be a table of plain"),
    ],
)
def test_a_damaged_file_is_named_in_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(FederationError, match=sentence) as caught:
        read_plan(tmp_path)
    assert str(tmp_path / FILE) in str(caught.value)


def test_a_setting_of_nothing_survives_the_file(tmp_path: Path) -> None:
    plan = replace(PLAN, settings={"algorithm": "fedgkd", "hidden": 8, "x0_scale": None})
    plan.write(tmp_path)
    assert read_plan(tmp_path).config.method == plan.config.method


def test_a_folder_without_the_file_is_not_a_kit(tmp_path: Path) -> None:
    with pytest.raises(FederationError, match="is not a kit"):
        read_plan(tmp_path)


def test_terms_leave_out_what_is_each_partys_own_business() -> None:
    terms = PLAN.terms()
    assert {"host", "port", "device", "threads", "dataset"}.isdisjoint(terms)
    assert terms["hidden"] == 8
    assert terms["sites"] == ["north", "south"]
    assert replace(PLAN, blocked=("south",)).terms() == terms


def test_a_graph_is_opened_with_its_own_split_or_one_by_the_agreed_seed(tmp_path: Path) -> None:
    graph = random_graph()
    save_graph(tmp_path / "own.npz", graph)
    save_graph(tmp_path / "bare.npz", replace(graph, train_mask=None, val_mask=None, test_mask=None))
    own, bare = PLAN.open_graph(tmp_path / "own.npz"), PLAN.open_graph(tmp_path / "bare.npz")
    assert own.masks is not None
    assert bare.masks is not None
    np.testing.assert_array_equal(own.masks[0], graph.train_mask)
    again = PLAN.open_graph(tmp_path / "bare.npz")
    np.testing.assert_array_equal(bare.masks[0], again.masks[0] if again.masks else None)


@pytest.mark.parametrize(
    ("graph", "sentence"),
    [
        ({"features": 5}, "has 5 feature columns, but the federation agreed on 6"),
        ({"classes": 4}, "class"),
    ],
)
def test_a_graph_that_was_not_agreed_on_is_refused(graph: dict[str, int], sentence: str, tmp_path: Path) -> None:
    save_graph(tmp_path / "odd.npz", random_graph(**graph))
    with pytest.raises(DataError, match=sentence):
        PLAN.open_graph(tmp_path / "odd.npz")


def test_a_graph_without_training_nodes_is_refused(tmp_path: Path) -> None:
    graph = random_graph()
    none = np.zeros(graph.num_nodes, np.bool_)
    save_graph(tmp_path / "idle.npz", replace(graph, train_mask=none))
    with pytest.raises(DataError, match="no training node"):
        PLAN.open_graph(tmp_path / "idle.npz")


@pytest.mark.parametrize("change", [{"rules": replace(RULES, features=0)}, {"classes": 0}])
def test_sizes_that_are_not_said_yet_are_asked_for(change: dict[str, Any]) -> None:
    with pytest.raises(FederationError, match="does not say the number of"):
        replace(PLAN, **change).algorithm()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"settings": {"rounds": 10**15}}, "rounds must be at most 10,000,000 in a federation, not '1000000000000000'"),
        ({"settings": {"layers": 10**8}}, "layers must be at most 1,000 in a federation"),
        ({"settings": {"hidden": 10**9}}, "hidden must be at most 1,000,000 in a federation"),
        ({"settings": {"algorithm": "fedgkd", "nodes_per_class": 10**9}}, "nodes_per_class must be at most 1,000,000"),
        ({"settings": {"hidden": 10**6}}, r"hidden = 1000000, layers = 2, 6 features and 3 classes takes about .* GB"),
        ({"settings": {"hidden": 200_000}}, r"a model with .* takes about 2,320 GB of memory, but there are .* GB"),
        ({"rules": replace(RULES, features=10**6), "settings": {"hidden": 10**5}}, "GB of memory"),
        ({"rules": replace(RULES, features=10**15)}, "features must be at most 1,000,000"),
        ({"rules": replace(RULES, segment=10**15)}, "segment must be at most 1,000,000"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(change: dict[str, Any], sentence: str) -> None:
    began = time.monotonic()
    with pytest.raises((FederationError, SettingError), match=sentence):
        replace(PLAN, **change).algorithm()
    assert time.monotonic() - began < 10.0, "worked out, not tried"


def test_a_number_without_end_is_refused_by_name(tmp_path: Path) -> None:
    PLAN.write(tmp_path)
    path = tmp_path / FILE
    path.write_text(path.read_text().replace("rounds = 5", "rounds = 1e30"))
    with pytest.raises(SettingError, match="rounds must be"):
        _ = read_plan(tmp_path).config


def test_a_coordinator_and_a_site_need_room_for_what_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "memory", lambda: 20_000)
    PLAN.algorithm()
    with pytest.raises(FederationError, match="the models of 200 sites with hidden = 8"):
        replace(PLAN, sites=tuple(f"s{number}" for number in range(200))).check_coordinator()
    PLAN.check_graph(random_graph())
    with pytest.raises(FederationError, match="training on 900 nodes with hidden = 8"):
        PLAN.check_graph(random_graph(nodes=900))


def test_this_machine_has_some_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert 10**8 < hardware.memory() < 10**14
    monkeypatch.setattr(hardware, "_CONTAINER", tmp_path / "limit")
    (tmp_path / "limit").write_text("123456\n")
    assert hardware.memory() == 123456
    (tmp_path / "limit").write_text("max\n")
    assert hardware.memory() > 123456
