"""Whose figures decide what: every site chooses its own model, and no other site can move it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from fedgkd.algorithms import ServerRound
from fedgkd.clients import Tensors
from fedgkd.collaboration import Mixing
from fedgkd.experiments.model_file import PersonalModel
from fedgkd.federation.checks import METRICS
from fedgkd.federation.coordinator import ROUND
from fedgkd.federation.site import Site
from fedgkd.federation.standing import Standing, all_are_settled
from fedgkd.federation.wire import Message
from tests.federation.memory import Memory, make_coordinator, make_plan, make_sites
from tests.graphs import planted_federation


def lies(sites: Mapping[str, Site], liar: str, lie: float, settled: bool) -> Callable[[str, bytes], bytes]:
    """One site's answers, with other metrics and another word on whether its choice is final."""

    def answer(name: str, data: bytes) -> bytes:
        honest = sites[name].answer(data)
        if name != liar or Message.from_bytes(data).facts["kind"] != ROUND:
            return honest
        message = Message.from_bytes(honest)
        told = {
            name: torch.full_like(tensor, lie)
            for name, tensor in message.tensors.items()
            if name in METRICS and name != "loss"
        }
        return Message({**message.facts, "settled": settled}, {**message.tensors, **told}).to_bytes()

    return answer


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("lie", [math.nan, 1.0, 0.0], ids=["nan", "one", "nothing"])
def test_what_one_site_reports_moves_nothing_but_its_own_line(lie: float, settled: bool, tmp_path: Path) -> None:
    """The same models, bit for bit, with the early stop on: the liar can only keep the others busy."""
    federation = planted_federation(4)
    plan = make_plan(federation, "fedper", rounds=12, patience=2)
    results: dict[str, Any] = {}
    models: dict[str, list[bytes]] = {}
    for world in ("honest", "lying"):
        sites = make_sites(plan, federation, tmp_path / world)
        answer = lies(sites, "site-1", lie, settled) if world == "lying" else None
        make_coordinator(plan, tmp_path / world).run_segment(Memory(sites, answer))
        results[world] = json.loads((tmp_path / world / "run" / "result.json").read_text())
        models[world] = [(tmp_path / world / site / "model.safetensors").read_bytes() for site in plan.sites]
    honest, lying = results["honest"], results["lying"]
    assert honest["rounds"] < 12, "all agreed on an end"
    assert lying["rounds"] <= honest["rounds"] if settled else lying["rounds"] == 12
    others = [number for number, site in enumerate(plan.sites) if site != "site-1"]
    assert all(models["honest"][number] == models["lying"][number] for number in others)
    for number in others:
        true, told = honest["sites"][number], lying["sites"][number]
        assert all(true[name] == told[name] for name in ("scored_round", "val", "test"))


def test_a_site_that_never_trained_gets_no_model_and_a_sentence(tmp_path: Path) -> None:
    federation, said = planted_federation(3), []
    plan = make_plan(federation, "fedavg", rounds=2)
    sites = make_sites(plan, federation, tmp_path)

    def late(name: str, data: bytes) -> bytes | None:
        too_late = name == "site-2" and Message.from_bytes(data).facts["kind"] == ROUND
        return None if too_late else sites[name].answer(data)

    make_coordinator(plan, tmp_path, said).run_segment(Memory(sites, late))
    assert "site-2 took part in no round and gets no model: late: no answer within 10 s" in said
    assert not (tmp_path / "site-2" / "model.safetensors").exists()
    own = json.loads((tmp_path / "site-2" / "result.json").read_text())
    assert (own["rounds_trained"], own["best_round"], own["at_best_round"]) == (0, 0, {})
    assert own["outcome"].startswith("this site trained in no round, so it has no model")
    rows = json.loads((tmp_path / "run" / "result.json").read_text())["sites"]
    assert [row["rounds"] for row in rows] == [2, 2, 0]
    assert [row["left_out"] for row in rows] == [None, None, "late: no answer within 10 s"]
    assert rows[2]["scored_round"] == 0
    make_coordinator(plan, tmp_path)
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["sites"][2]["left_out"] == "late: no answer within 10 s", "also when it is asked for later"
    for row, site in zip(rows[:2], plan.sites, strict=False):
        model = PersonalModel.load(tmp_path / site / "model.safetensors")
        assert row["scored_round"] == model.origin["round"]
        assert 0.0 < row["test"] <= 1.0


def test_a_latecomers_model_is_of_a_round_that_it_trained(tmp_path: Path) -> None:
    """It misses the first two rounds; the best round of the others may be one of those."""
    federation = planted_federation(3)
    plan = make_plan(federation, "fedavg", rounds=5)
    sites = make_sites(plan, federation, tmp_path)
    present = {name: site for name, site in sites.items() if name != "site-2"}
    exchange = Memory(present)

    def come(name: str, data: bytes) -> bytes:
        if Message.from_bytes(data).facts["round"] == 2 and name == "site-1":
            exchange.sites = sites
        return sites[name].answer(data)

    exchange.answer = come
    make_coordinator(plan, tmp_path).run_segment(exchange)
    trained = [json.loads(line)["round"] for line in (tmp_path / "site-2" / "metrics.jsonl").read_text().splitlines()]
    assert trained == [3, 4, 5]
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["sites"][2]["rounds"] == 3
    assert result["sites"][2]["scored_round"] in trained
    assert result["best_round"] in trained, "rounds of two sites are not compared with rounds of three"


def test_a_site_whose_training_diverged_keeps_its_last_good_model(tmp_path: Path) -> None:
    federation = planted_federation(2)
    plan = make_plan(federation, "fedavg", rounds=2)
    sites = make_sites(plan, federation, tmp_path)
    step = sites["site-1"].algorithm.client_step

    def diverge(clients: Any, download: Tensors) -> Tensors:
        upload = step(clients, download)
        if clients.round == 2:
            for tensor in (*clients.state.values(), upload["loss"]):
                tensor.fill_(torch.nan if tensor.is_floating_point() else 0)
        return upload

    sites["site-1"].algorithm.client_step = diverge  # type: ignore[method-assign]
    make_coordinator(plan, tmp_path).run_segment(Memory(sites))
    model = PersonalModel.load(tmp_path / "site-1" / "model.safetensors")
    assert model.origin["round"] == 1
    assert all(bool(tensor.isfinite().all()) for tensor in model.params.values())


@pytest.mark.parametrize("absent", [None, "site-1"])
def test_row_i_of_the_mixing_matrix_makes_client_is_model(absent: str | None, tmp_path: Path) -> None:
    federation = planted_federation(3)
    plan = make_plan(federation, "fedper", rounds=2)
    sites = make_sites(plan, federation, tmp_path)
    there = [site for site in plan.sites if site != absent]
    weights = torch.tensor([[0.5, 0.3, 0.2], [0.0, 0.9, 0.1], [0.6, 0.4, 0.0]], dtype=torch.float64)[: len(there)]
    weights = weights[:, : len(there)] / weights[:, : len(there)].sum(1, keepdim=True)
    sent: dict[str, Tensors] = {}
    received: dict[str, Tensors] = {}

    def answer(name: str, data: bytes) -> bytes | None:
        asked = Message.from_bytes(data)
        if asked.facts["round"] == 2 and asked.facts["kind"] == ROUND:
            received[name] = asked.tensors
        if name == absent:
            return None
        answer = sites[name].answer(data)
        if asked.facts["round"] == 1:
            sent[name] = Message.from_bytes(answer).tensors
        return answer

    coordinator = make_coordinator(plan, tmp_path)
    coordinator.algorithm.server_step = lambda uploads, server: _fixed(weights, server)  # type: ignore[method-assign]
    start = {name: tensor.clone() for name, tensor in coordinator.models.items()}
    coordinator.run_segment(Memory(sites, answer))
    for name in coordinator.algorithm.shared:
        for i, site in enumerate(there):
            expected = sum(float(weights[i, j]) * sent[other][name][0] for j, other in enumerate(there))
            torch.testing.assert_close(received[site][name][0], expected)
        if absent:
            assert torch.equal(received[absent][name][0], start[name][plan.sites.index(absent)])


def _fixed(weights: torch.Tensor, server: ServerRound) -> Mixing:
    return Mixing(weights)


def test_all_who_still_take_part_have_to_agree_on_the_end() -> None:
    def standing(settled: bool, last: int = 10) -> Standing:
        return Standing(rounds=last, last=last, settled=settled)

    assert not all_are_settled([standing(True)], 10, patience=0), "a patience of 0 never ends"
    assert all_are_settled([standing(True), standing(True)], 10, patience=5)
    assert not all_are_settled([standing(True), standing(True), standing(False)], 10, patience=5)
    assert all_are_settled([standing(True), standing(False, last=5)], 10, patience=5), "who left has no vote"
    assert not all_are_settled([standing(True, last=5), standing(True, last=5)], 10, patience=5), "nobody is here"


def test_a_standing_is_what_the_site_says_of_its_choice() -> None:
    standing = Standing()
    standing.take_part(1, {"round": 1, "scored_round": 1, "settled": False}, val=0.5, test=0.4)
    standing.take_part(2, {"round": 2, "scored_round": 1, "settled": True}, val=0.4, test=0.9)
    assert standing == Standing(rounds=2, last=2, scored_round=1, val=0.5, test=0.4, settled=True)
    standing.take_part(3, {"round": 3, "scored_round": 9, "settled": 1}, val=math.nan, test=0.9)
    assert standing == Standing(rounds=3, last=3, scored_round=1, val=0.5, test=0.4), "nonsense is not taken in"
    standing.choose({"round": 4, "scored_round": 4})
    assert (standing.scored_round, standing.val, standing.test) == (4, None, None), "an upload that came too late"


def test_a_run_of_an_older_version_goes_on(tmp_path: Path) -> None:
    """Its checkpoint knows nothing of the sites' standings."""
    federation = planted_federation(2)
    plan = make_plan(federation, "fedavg", rounds=3, rules={"segment": 2})
    sites = make_sites(plan, federation, tmp_path)
    first = make_coordinator(plan, tmp_path)
    first.run_segment(Memory(sites))
    stored = first.directory.state.newest_first([])[0]
    newer = ("standings", "compared", "remarks", "distances")
    older = {name: value for name, value in stored.facts.items() if name not in newer}
    for path in (tmp_path / "run" / "checkpoint").glob("*.json"):
        path.unlink()
    first.directory.state.write(stored.serial, stored.tensors, older)
    make_coordinator(plan, tmp_path).run_segment(Memory(sites))
    rows = json.loads((tmp_path / "run" / "result.json").read_text())["sites"]
    assert [(row["rounds"], row["last"]) for row in rows] == [(1, 3), (1, 3)], "it counts from there on"
    assert all(row["scored_round"] > 0 for row in rows), "which the site says"
