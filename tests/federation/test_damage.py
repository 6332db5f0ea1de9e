"""A coordinator that was killed and whose newest checkpoint is damaged: it falls back, and its sites with it."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from fedgkd.federation.checks import cannot
from fedgkd.federation.coordinator import FINISH
from fedgkd.federation.site import Site
from fedgkd.federation.wire import Message
from tests.federation.deployment import deployed, free_port, wait_until
from tests.federation.memory import Memory, final_models, make_coordinator, make_plan, make_sites
from tests.graphs import planted_federation


def flip_a_byte(checkpoint: Path) -> int:
    """In the newest checkpoint; returns its round."""
    described = {json.loads(path.read_text())["serial"]: path for path in checkpoint.glob("state-*.json")}
    newest = max(described)
    path = described[newest].with_suffix(".safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 0x40
    path.write_bytes(data)
    return newest


def dies_after(round_: int, sites: dict[str, Site], asked: list[int]) -> Memory:
    """Every site has trained the round, and then the coordinator dies."""

    def answer(name: str, data: bytes) -> bytes:
        answer = sites[name].answer(data)
        facts = Message.from_bytes(data).facts
        if facts["kind"] != FINISH:
            asked.append(facts["round"])
            if (facts["round"], name) == (round_, list(sites)[-1]):
                raise KeyboardInterrupt
        return answer

    return Memory(sites, answer)


@pytest.mark.parametrize("flipped", [1, 2])
@pytest.mark.parametrize("restarted", [False, True], ids=["sites live on", "sites are started anew"])
def test_it_falls_back_and_ends_as_if_nothing_had_happened(flipped: int, restarted: bool, tmp_path: Path) -> None:
    """The sites are ahead by the round under way and by those that are damaged; the same models, bit for bit."""
    federation = planted_federation(2)
    plan = make_plan(federation, "fedgkd", rounds=7)
    for world in ("whole", "damaged"):
        sites, asked = make_sites(plan, federation, tmp_path / world), []
        if world == "damaged":
            with pytest.raises(KeyboardInterrupt):
                make_coordinator(plan, tmp_path / world).run_segment(dies_after(5, sites, asked))
            assert asked[-1] == 5
            checkpoint = tmp_path / world / "run" / "checkpoint"
            assert flip_a_byte(checkpoint) == 4
            if flipped == 2:
                (damaged,) = (p for p in checkpoint.glob("state-*.json") if json.loads(p.read_text())["serial"] == 3)
                damaged.write_text("half")
            if restarted:
                sites = make_sites(plan, federation, tmp_path / world)
        coordinator = make_coordinator(plan, tmp_path / world)
        assert coordinator.round == (4 - flipped if world == "damaged" else 0)
        coordinator.run_segment(Memory(sites))
    whole, damaged_ = (final_models([tmp_path / world / site for site in plan.sites]) for world in ("whole", "damaged"))
    for one, other in zip(whole, damaged_, strict=True):
        assert one.origin == other.origin
        assert all(torch.equal(one.params[name], tensor) for name, tensor in other.params.items())


def test_a_site_that_cannot_go_back_so_far_goes_on_with_the_oldest_state_that_it_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    federation = planted_federation(2)
    plan = make_plan(federation, "fedper", rounds=5)
    sites = make_sites(plan, federation, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        make_coordinator(plan, tmp_path).run_segment(dies_after(5, sites, []))
    flip_a_byte(tmp_path / "run" / "checkpoint")
    for path in (tmp_path / "site-1" / "state").glob("*.json"):
        if json.loads(path.read_text())["serial"] < 5:
            path.unlink()
    make_coordinator(plan, tmp_path).run_segment(Memory(sites))
    assert "the coordinator is back at round 4; the oldest state here is of round 5" in caplog.text
    rows = json.loads((tmp_path / "run" / "result.json").read_text())["sites"]
    assert [row["last"] for row in rows] == [5, 5]
    own = (tmp_path / "site-1" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in own] == [1, 2, 3, 4, 5]


def test_a_state_that_was_gone_back_from_is_never_taken_up_again(tmp_path: Path) -> None:
    """The site repeats round 3 and is started anew before it is asked for more."""
    federation = planted_federation(1)
    plan = make_plan(federation, "fedper", rounds=6)
    sites = make_sites(plan, federation, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        make_coordinator(plan, tmp_path).run_segment(dies_after(5, sites, []))
    asked = Message.from_bytes(last_question(plan, tmp_path, sites)).facts["round"]
    assert asked == 5
    site = sites["site-0"]
    site._go_back(3)
    assert site.done == 2
    assert make_sites(plan, federation, tmp_path)["site-0"].done == 2


def last_question(plan: object, tmp_path: Path, sites: dict[str, Site]) -> bytes:
    questions: list[bytes] = []

    def answer(name: str, data: bytes) -> bytes:
        questions.append(data)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_coordinator(plan, tmp_path).run_segment(Memory(sites, answer))  # type: ignore[arg-type]
    return questions[-1]


def test_a_site_that_refuses_is_left_in_peace_after_three_times(tmp_path: Path) -> None:
    federation = planted_federation(3)
    plan = make_plan(federation, "fedavg", rounds=8)
    sites = make_sites(plan, federation, tmp_path)
    exchange = Memory(sites, lambda name, data: cannot(None) if name == "site-1" else sites[name].answer(data))
    make_coordinator(plan, tmp_path).run_segment(exchange)
    assert sum("site-1" in asked for asked in exchange.asked[:8]) == 3
    rows = json.loads((tmp_path / "run" / "status.json").read_text())["sites"]
    assert [row["whereabouts"] for row in rows] == ["here", "refusing", "here"]


def test_real_processes_go_on_after_a_damaged_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("nvflare", reason="needs the extra: pip install 'fedgkd[federation]'")
    federation = planted_federation(2)
    rules = {"port": free_port(), "min_sites": 2, "deadline": 60.0}
    plan = make_plan(federation, "fedper", rules=rules, rounds=100_000, patience=0)
    with deployed(tmp_path, plan, federation) as parties:
        parties.serve()
        for site in plan.sites:
            parties.join(site)
        parties.start()
        parties.wait_for_round(4, 120)
        parties.kill("coordinator")
        stood = flip_a_byte(parties.kits / "coordinator" / "run" / "checkpoint")
        parties.serve()
        parties.wait_for("coordinator", "is damaged; an older one is used", 120)
        parties.wait_for_round(stood + 3, 120)
        said = parties.said("coordinator")
        assert "is kept out" not in said
        rounds = [record["round"] for record in parties.records()]
        assert rounds == list(range(1, len(rounds) + 1))
        again = [int(number) for number in re.findall(r"round (\d+)/\d+: 2 of 2 sites", said)]
        lost = max(before - after for before, after in pairwise(again)) + 1
        assert lost <= 2, again
        wait_until("sites follow", lambda: all(f"round {stood + 1} done" in parties.said(site) for site in plan.sites))
