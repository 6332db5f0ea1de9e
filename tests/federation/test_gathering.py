"""Who is waited for before a round, and for how long; without a network, and with a clock of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from fedgkd.errors import FederationError
from fedgkd.federation import coordinator as module
from fedgkd.federation.site import Site
from tests.federation.memory import Memory, make_coordinator, make_plan, make_sites
from tests.graphs import planted_federation


class Door(Memory):
    """Sites that come one by one: each is connected from a second on, and can be asked two seconds later."""

    def __init__(self, sites: Mapping[str, Site], comes: Mapping[str, float]) -> None:
        super().__init__(sites)
        self.comes, self.now = comes, 0.0

    def present(self) -> Mapping[str, bool]:
        return {site: self.now >= moment + 2.0 for site, moment in self.comes.items() if self.now >= moment}

    def pause(self, seconds: float) -> bool:
        self.now += seconds
        return True

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def said() -> list[str]:
    return []


def train(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: list[str],
    comes: Mapping[str, float],
    min_sites: int = 1,
    wait: float = 60.0,
) -> Door:
    federation = planted_federation(3)
    plan = make_plan(federation, "fedavg", rounds=2, rules={"min_sites": min_sites})
    exchange = Door(make_sites(plan, federation, tmp_path), comes)
    monkeypatch.setattr(module.time, "monotonic", exchange.monotonic)
    make_coordinator(plan, tmp_path, said).run_segment(exchange, wait, everybody=True)
    return exchange


def test_training_begins_when_all_that_are_listed_are_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    exchange = train(tmp_path, monkeypatch, said, {"site-0": 0.0, "site-1": 30.0, "site-2": 55.0})
    assert exchange.asked[0] == ["site-0", "site-1", "site-2"]
    assert exchange.now == 57.0
    assert said[0].startswith(
        "waiting for site-0 (starting), site-1 (not connected), site-2 (not connected); here: nobody"
    )
    assert "waiting for site-1 (not connected), site-2 (not connected); here: site-0" in said
    assert "waiting for site-2 (starting); here: site-0, site-1" in said
    assert "training with site-0, site-1, site-2" in said


def test_who_does_not_come_is_waited_for_just_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    exchange = train(tmp_path, monkeypatch, said, {"site-0": 0.0, "site-1": 1.0})
    assert (exchange.now, exchange.asked[0]) == (60.0, ["site-0", "site-1"])
    assert "going on without site-2 (not connected); who comes later takes part from then on" in said


def test_a_site_that_is_about_to_take_part_is_waited_for_even_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    exchange = train(tmp_path, monkeypatch, said, {"site-0": 0.0, "site-1": 1.0}, wait=0.0)
    assert (exchange.now, exchange.asked[0]) == (3.0, ["site-0", "site-1"])


def test_with_too_few_sites_there_is_a_clear_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    with pytest.raises(
        FederationError, match=r"only 1 of at least 2 sites are here after 60 s; missing: site-1 \(not co"
    ):
        train(tmp_path, monkeypatch, said, {"site-0": 0.0}, min_sites=2)
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_blocked_site_is_not_waited_for(tmp_path: Path) -> None:
    federation = planted_federation(2)
    plan = replace(make_plan(federation, "fedavg", rounds=1), blocked=("site-1",))
    sites = make_sites(plan, federation, tmp_path)
    del sites["site-1"]
    make_coordinator(plan, tmp_path).run_segment(Memory(sites), 60.0, everybody=True)
    rows = json.loads((tmp_path / "run" / "result.json").read_text())["sites"]
    assert rows[1]["left_out"] == "it is blocked in the coordinator's federation file"


def test_a_later_segment_waits_for_those_of_the_last_round_and_not_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    federation = planted_federation(3)
    plan = make_plan(federation, "fedavg", rounds=2, rules={"segment": 1})
    sites = make_sites(plan, federation, tmp_path)
    make_coordinator(plan, tmp_path).run_segment(Memory({name: sites[name] for name in ("site-0", "site-1")}))
    exchange = Door(sites, {"site-0": 0.0, "site-1": 20.0})
    monkeypatch.setattr(module.time, "monotonic", exchange.monotonic)
    make_coordinator(plan, tmp_path, said).run_segment(exchange, 600.0)
    assert (exchange.now, exchange.asked[0]) == (22.0, ["site-0", "site-1"])


def test_who_has_gone_is_told_and_not_asked_any_more(tmp_path: Path, said: list[str]) -> None:
    """Its connection is closed between two rounds."""
    federation = planted_federation(2)
    plan = make_plan(federation, "fedavg", rounds=3)
    exchange = Memory(make_sites(plan, federation, tmp_path))
    everybody = exchange.sites

    def leave(name: str, data: bytes) -> bytes:
        answer = everybody[name].answer(data)
        exchange.sites = {"site-0": everybody["site-0"]} if name == "site-1" else exchange.sites
        return answer

    exchange.answer = leave
    make_coordinator(plan, tmp_path, said).run_segment(exchange)
    assert exchange.asked[:3] == [["site-0", "site-1"], ["site-0"], ["site-0"]]
    assert said.count("site-1 is gone: its connection was closed") == 1
    rows = json.loads((tmp_path / "run" / "status.json").read_text())["sites"]
    assert (rows[1]["whereabouts"], rows[1]["remark"]) == ("not connected", "gone: its connection was closed")
