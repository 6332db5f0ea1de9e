"""Coordinator and sites without a network: the same weights as a simulation, whatever goes wrong in between."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save
from typer.testing import CliRunner

from fedgkd.algorithms import ALGORITHMS
from fedgkd.cli import app
from fedgkd.errors import FederationError
from fedgkd.experiments.plain import plain
from fedgkd.federation.checks import Refused, cannot
from fedgkd.federation.coordinator import Coordinator
from fedgkd.federation.site import Site
from fedgkd.federation.wire import Message
from tests.federation.memory import (
    Memory,
    Simulation,
    assert_same_models,
    chosen_rounds,
    final_models,
    make_coordinator,
    make_plan,
    make_sites,
)
from tests.graphs import planted_federation


def sites_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("site-*"))


@pytest.mark.parametrize(
    ("name", "select"),
    [*((name, "trained") for name in ALGORITHMS), ("fedper", "client"), ("fedgkd", "midpoint"), ("fedper", "midpoint")],
)
def test_a_federation_ends_with_the_weights_of_a_simulation(name: str, select: str, tmp_path: Path) -> None:
    federation = planted_federation(3)
    plan = make_plan(federation, name, select=select)
    coordinator = make_coordinator(plan, tmp_path)
    coordinator.run_segment(Memory(make_sites(plan, federation, tmp_path)))
    simulated = Simulation(name, federation, select=select)
    chosen = chosen_rounds(sites_in(tmp_path))
    assert_same_models(final_models(sites_in(tmp_path)), simulated.chosen(chosen))
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert [site["scored_round"] for site in result["sites"]] == chosen
    expected = simulated.run.result()
    for key in ("best_round", "bytes_up", "bytes_down", "parameters_shared", "rounds"):
        assert result[key] == expected[key], key
    assert result["test_accuracy"] == pytest.approx(expected["test_accuracy"], abs=0.02)


def corrupt(name: str, data: bytes) -> bytes:
    message = Message.from_bytes(data)
    tensors = {key: torch.full_like(tensor, torch.nan) for key, tensor in message.tensors.items()}
    return Message(message.facts, tensors).to_bytes() if name == "site-1" else data


def test_a_spoilt_upload_is_named_and_kept_out(tmp_path: Path) -> None:
    federation, said = planted_federation(3), []
    plan = make_plan(federation, "fedavg", rounds=2)
    coordinator = make_coordinator(plan, tmp_path, said)
    sites = make_sites(plan, federation, tmp_path)
    coordinator.run_segment(Memory(sites, lambda name, data: corrupt(name, sites[name].answer(data))))
    refusals = [sentence for sentence in said if "site-1 is kept out of the mixture" in sentence]
    assert len(refusals) == 2
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [record["left_out"] for record in records] == [[1], [1]]
    assert all(tensor.isfinite().all() for tensor in coordinator.models.values())


@pytest.mark.parametrize("facts", ["[" * 2_000, '{"seconds": 1' + "0" * 400 + "}"], ids=["nested", "huge"])
def test_no_answer_ends_the_coordinator(facts: str, tmp_path: Path) -> None:
    """Facts that Python's own reader of JSON, or its numbers, cannot bear."""
    federation, said = planted_federation(2), []
    plan = make_plan(federation, "fedavg", rounds=1)
    sites = make_sites(plan, federation, tmp_path)

    def answer(name: str, data: bytes) -> bytes:
        message = Message.from_bytes(sites[name].answer(data))
        if name == "site-1":
            return message.to_bytes()
        whole = facts if facts.startswith("[") else json.dumps(dict(message.facts) | json.loads(facts))
        return save(message.tensors, metadata={"fedgkd": whole})

    make_coordinator(plan, tmp_path, said).run_segment(Memory(sites, answer))
    refused = any("site-0 is kept out of the mixture: it sent something that is not a message" in line for line in said)
    assert refused == facts.startswith("["), "a site's own account of its time is taken or left, and decides nothing"
    assert json.loads((tmp_path / "run" / "result.json").read_text())["rounds"] == 1


def test_an_answer_that_is_too_large_is_not_looked_at(tmp_path: Path) -> None:
    federation, said = planted_federation(2), []
    plan = make_plan(federation, "fedavg", rounds=1)
    sites = make_sites(plan, federation, tmp_path)
    coordinator = make_coordinator(plan, tmp_path, said)
    real = len(sites["site-1"].answer(coordinator_question(coordinator)))
    assert real <= coordinator.largest <= 4 * real + 10_000
    large = bytes(coordinator.largest + 1)
    exchange = Memory(sites, lambda name, data: large if name == "site-0" else sites[name].answer(data))
    coordinator.run_segment(exchange)
    expected = f"sent {len(large):,} bytes, where at most {coordinator.largest:,} are expected"
    assert f"round 1: site-0 is kept out of the mixture: it {expected}" in said


def coordinator_question(coordinator: Coordinator) -> bytes:
    download = {name: tensor[:1] for name, tensor in coordinator.models.items()}
    return Message(coordinator._facts("round", 1), download).to_bytes()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithms_messages_fit_with_room_to_spare(name: str, tmp_path: Path) -> None:
    """Half of what is let through is what the rehearsal has."""
    federation = planted_federation(2)
    plan = make_plan(federation, name, rounds=2)
    sites, sizes = make_sites(plan, federation, tmp_path), []

    def answer(site: str, data: bytes) -> bytes:
        sizes.append(len(data))
        answer = sites[site].answer(data)
        sizes.append(len(answer))
        return answer

    coordinator = make_coordinator(plan, tmp_path)
    coordinator.run_segment(Memory(sites, answer))
    assert max(sizes) <= coordinator.largest / 2


def test_absent_sites_keep_their_model_and_the_others_train_on(tmp_path: Path) -> None:
    federation = planted_federation(3)
    plan = make_plan(federation, "fedavg", rounds=1)
    coordinator = make_coordinator(plan, tmp_path)
    before = {name: tensor.clone() for name, tensor in coordinator.models.items()}
    sites = make_sites(plan, federation, tmp_path)
    coordinator.run_segment(Memory(sites, lambda name, data: None if name == "site-2" else sites[name].answer(data)))
    for name, tensor in coordinator.models.items():
        assert torch.equal(tensor[2], before[name][2])
        assert torch.equal(tensor[0], tensor[1])
        assert not torch.equal(tensor[0], before[name][0])


@pytest.mark.parametrize("spoilt", [(4,), (4, 6)], ids=["once", "twice"])
def test_with_too_few_answers_the_round_is_repeated_with_the_same_result(
    tmp_path: Path, spoilt: tuple[int, ...]
) -> None:
    """The second site's answers are spoilt, of round 2 or of all its repetitions but the last."""
    federation, said, asked = planted_federation(2), [], 0
    plan = make_plan(federation, "fedper", rules={"min_sites": 2}, rounds=3)
    sites = make_sites(plan, federation, tmp_path)

    def answer(name: str, data: bytes) -> bytes | None:
        nonlocal asked
        asked += 1
        answer = sites[name].answer(data)
        return b"spoilt" if name == "site-1" and asked in spoilt else answer

    coordinator = make_coordinator(plan, tmp_path, said)
    coordinator.run_segment(Memory(sites, answer))
    assert sum("is repeated: 1 of 2 sites" in sentence for sentence in said) == len(spoilt)
    assert coordinator.round == 3
    simulated = Simulation("fedper", federation)
    assert_same_models(final_models(sites_in(tmp_path)), simulated.chosen(chosen_rounds(sites_in(tmp_path))))


def test_a_round_that_fails_three_times_is_the_end_with_the_reasons(tmp_path: Path) -> None:
    federation, asked = planted_federation(2), 0
    plan = make_plan(federation, "fedper", rules={"min_sites": 2}, rounds=3)
    sites = make_sites(plan, federation, tmp_path)

    def answer(name: str, data: bytes) -> bytes | None:
        nonlocal asked
        asked += name == "site-1"
        return cannot(None) if name == "site-1" and asked > 1 else sites[name].answer(data)

    coordinator = make_coordinator(plan, tmp_path)
    with pytest.raises(FederationError) as ended:
        coordinator.run_segment(Memory(sites, answer))
    assert str(ended.value) == (
        "round 2 failed 3 times in a row: 1 of 2 sites gave a usable answer, at least 2 are needed "
        "(site-1 is refused: it answered that it cannot; its own log says why)"
    )
    assert (coordinator.round, asked) == (1, 4)


def test_a_dark_site_is_not_waited_for(tmp_path: Path) -> None:
    federation, said = planted_federation(3), []
    plan = make_plan(federation, "fedavg", rounds=4)
    sites = make_sites(plan, federation, tmp_path)
    exchange = Memory(sites, lambda name, data: None if name == "site-0" else sites[name].answer(data))
    make_coordinator(plan, tmp_path, said).run_segment(exchange)
    assert exchange.asked[:4] == [["site-0", "site-1", "site-2"]] * 2 + [["site-1", "site-2"]] * 2
    assert "site-0 has missed two rounds; it is skipped until it is back" in said


@pytest.mark.parametrize("killed", ["coordinator", "site", "both"])
def test_killed_and_taken_up_is_bit_identical_to_uninterrupted(killed: str, tmp_path: Path) -> None:
    """The coordinator dies after the sites have trained round 3 and before it has stored it."""
    federation = planted_federation(2)
    plan = make_plan(federation, "fedgkd", rounds=4)
    for folder in ("whole", "broken"):
        sites = make_sites(plan, federation, tmp_path / folder)
        coordinator = make_coordinator(plan, tmp_path / folder)
        if folder == "broken":
            with pytest.raises(KeyboardInterrupt):
                coordinator.run_segment(Memory(sites, DiesInRound(3, sites)))
            if killed != "site":
                coordinator = make_coordinator(plan, tmp_path / folder)
            if killed != "coordinator":
                sites = make_sites(plan, federation, tmp_path / folder)
        coordinator.run_segment(Memory(sites))
    for whole, broken in zip(
        final_models(sites_in(tmp_path / "whole")), final_models(sites_in(tmp_path / "broken")), strict=True
    ):
        assert all(torch.equal(whole.params[name], tensor) for name, tensor in broken.params.items())
    first, second = ((tmp_path / folder / "run" / "metrics.jsonl").read_text() for folder in ("whole", "broken"))
    assert [without_times(line) for line in first.splitlines()] == [without_times(line) for line in second.splitlines()]


class DiesInRound:
    """All sites answer, and then the coordinator dies."""

    def __init__(self, round_: int, sites: dict[str, Site]) -> None:
        self.round, self.sites = round_, sites

    def __call__(self, name: str, data: bytes) -> bytes:
        answer = self.sites[name].answer(data)
        if Message.from_bytes(data).facts["round"] == self.round and name == list(self.sites)[-1]:
            raise KeyboardInterrupt
        return answer


def without_times(line: str) -> dict[str, object]:
    return {key: value for key, value in json.loads(line).items() if key != "seconds"}


def test_a_segment_ends_after_its_rounds_and_the_next_goes_on(tmp_path: Path) -> None:
    federation = planted_federation(2)
    plan = make_plan(federation, "fedavg", rules={"segment": 2}, rounds=3)
    sites = make_sites(plan, federation, tmp_path)
    rounds = []
    for _ in range(2):
        coordinator = make_coordinator(plan, tmp_path)
        coordinator.run_segment(Memory(sites))
        rounds.append(coordinator.round)
    assert rounds == [2, 3]
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["finished"]
    assert status["informed"] == ["site-0", "site-1"]


def test_a_site_that_missed_the_end_is_told_by_another_start(tmp_path: Path) -> None:
    federation = planted_federation(2)
    plan = make_plan(federation, "fedavg", rounds=2)
    sites = make_sites(plan, federation, tmp_path)

    def deaf(name: str, data: bytes) -> bytes | None:
        at_the_end = Message.from_bytes(data).facts["kind"] == "finish"
        return None if name == "site-1" and at_the_end else sites[name].answer(data)

    make_coordinator(plan, tmp_path).run_segment(Memory(sites, deaf))
    assert (tmp_path / "site-0" / "result.json").exists()
    assert not (tmp_path / "site-1" / "result.json").exists()
    again = make_coordinator(plan, tmp_path)
    again.run_segment(Memory(sites))
    assert json.loads((tmp_path / "site-1" / "result.json").read_text())["rounds"] == 2
    assert again.informed == {"site-0", "site-1"}


def test_a_run_of_other_terms_is_not_continued(tmp_path: Path) -> None:
    federation = planted_federation(2)
    plan = make_plan(federation, "fedavg", rules={"segment": 1})
    make_coordinator(plan, tmp_path).run_segment(Memory(make_sites(plan, federation, tmp_path)))
    with pytest.raises(FederationError, match=r"has changed since .* \(hidden\)"):
        make_coordinator(make_plan(federation, "fedavg", hidden=9), tmp_path)


def test_a_site_does_nothing_but_what_its_own_file_says(tmp_path: Path) -> None:
    federation = planted_federation(2)
    ours, theirs = make_plan(federation, "fedavg"), make_plan(federation, "fedavg", local_epochs=50)
    site = make_sites(ours, federation, tmp_path)["site-0"]
    facts = {"kind": "round", "run": "r", "round": 1, "terms": theirs.terms()}
    with pytest.raises(FederationError, match="is not ours: local_epochs differ; nothing was trained"):
        site.answer(Message(facts, {}).to_bytes())
    with pytest.raises(FederationError, match="asks for 'shell', which a site does not do"):
        site.answer(Message(facts | {"terms": ours.terms(), "kind": "shell"}, {}).to_bytes())
    with pytest.raises(FederationError, match="not a message"):
        site.answer(b"pickle?")
    assert not (tmp_path / "site-0" / "state").exists()


def test_a_name_that_is_not_on_the_list_is_no_site(tmp_path: Path) -> None:
    federation = planted_federation(2)
    plan = make_plan(federation)
    with pytest.raises(FederationError, match="'mallory' is not on the list"):
        Site(plan, "mallory", federation.graphs[0], tmp_path, threads=1)


def test_the_state_of_one_site_is_not_used_for_another(tmp_path: Path) -> None:
    federation = planted_federation(2)
    plan = make_plan(federation, rounds=1)
    make_coordinator(plan, tmp_path).run_segment(Memory(make_sites(plan, federation, tmp_path)))
    with pytest.raises(FederationError, match="belongs to the site 'site-0'"):
        Site(plan, "site-1", federation.graphs[1], tmp_path / "site-0", threads=1)


@pytest.mark.parametrize(("select", "scored"), [("trained", "trained"), ("midpoint", "selected")])
def test_metrics_that_are_kept_do_not_leave_and_the_site_chooses_by_its_own(
    tmp_path: Path, select: str, scored: str
) -> None:
    federation = planted_federation(2)
    plan = make_plan(federation, "fedavg", select=select)
    sites = make_sites(plan, federation, tmp_path)
    sites["site-1"] = Site(plan, "site-1", federation.graphs[1], tmp_path / "site-1", threads=1, share_metrics=False)
    make_coordinator(plan, tmp_path).run_segment(Memory(sites))
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(record["loss_per_client"][0] is not None for record in records)
    assert all(record["loss_per_client"][1] is None for record in records)
    assert all(record[model]["per_client"]["val"][1] is None for record in records for model in ("trained", "selected"))
    own = [json.loads(line) for line in (tmp_path / "site-1" / "metrics.jsonl").read_text().splitlines()]
    best = max(own, key=lambda report: (report[f"{scored}_accuracy"]["val"], -report["round"]))
    assert json.loads((tmp_path / "site-1" / "result.json").read_text())["best_round"] == best["round"]


def test_a_site_that_is_always_refused_does_not_keep_the_others_from_a_best_round(tmp_path: Path) -> None:
    federation, said = planted_federation(3), []
    plan = make_plan(federation, "fedavg", rounds=8, patience=2, rules={"min_sites": 2})
    sites = make_sites(plan, federation, tmp_path)
    exchange = Memory(sites, lambda name, data: cannot(None) if name == "site-0" else sites[name].answer(data))
    coordinator = make_coordinator(plan, tmp_path, said)
    coordinator.run_segment(exchange)
    assert "round 1: site-0 is kept out of the mixture: it answered that it cannot; its own log says why" in said
    assert exchange.asked[:3] == [list(sites)] * 3
    assert exchange.asked[3] == ["site-1", "site-2"], "it has said so three times"
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["chosen_by_validation"]
    assert [site["rounds"] > 0 for site in result["sites"]] == [False, True, True]
    assert result["sites"][0]["left_out"] == "refused: it answered that it cannot; its own log says why"
    assert result["sites"][1]["left_out"] is None
    assert result["rounds"] == min(8, max(site["scored_round"] for site in result["sites"]) + 2)
    assert (coordinator.bytes["site-0"]["up"], coordinator.informed) == (0, {"site-1", "site-2"})


def test_a_reason_is_not_forgotten_when_the_site_falls_silent(tmp_path: Path) -> None:
    federation = planted_federation(2)
    plan = make_plan(federation, "fedavg", rounds=2)
    sites = make_sites(plan, federation, tmp_path)

    def answer(name: str, data: bytes) -> bytes | Refused:
        first = Message.from_bytes(data).facts["round"] == 1
        return sites[name].answer(data) if name == "site-0" else cannot("no space is left" if first else None)

    coordinator = make_coordinator(plan, tmp_path)
    coordinator.run_segment(Memory(sites, answer))
    assert coordinator.remarks["site-1"] == "refused: it answered that it cannot: no space is left"


@pytest.mark.parametrize(
    ("facts", "change", "sentence"),
    [
        ({"round": "x"}, {}, "does not say which run and round it is of"),
        ({"round": None}, {}, "does not say which run and round it is of"),
        ({"round": 0}, {}, "does not say which run and round it is of"),
        ({"round": True}, {}, "does not say which run and round it is of"),
        ({"run": 5}, {}, "does not say which run and round it is of"),
        ({}, {"readout.bias": None}, "did not send the weights that were agreed on"),
        ({}, {"another": torch.zeros(1)}, "did not send the weights that were agreed on"),
        ({}, {"readout.bias": torch.zeros(1, 1, 1)}, r"'readout.bias' as torch.float32 of shape \(1, 1, 1\), not"),
        ({}, {"readout.bias": torch.zeros(1, 1, 3).double()}, "'readout.bias' as torch.float64"),
        ({}, {"readout.bias": torch.full((1, 1, 3), torch.nan)}, "not as finite 32-bit numbers"),
    ],
)
def test_a_site_refuses_what_no_coordinator_sends_before_it_touches_anything(
    tmp_path: Path, facts: dict[str, object], change: dict[str, torch.Tensor | None], sentence: str
) -> None:
    federation = planted_federation(2)
    plan = make_plan(federation, "fedavg")
    sites = make_sites(plan, federation, tmp_path)
    make_coordinator(plan, tmp_path).run_segment(Memory(sites))
    site, before = sites["site-0"], (tmp_path / "site-0" / "metrics.jsonl").read_text()
    start = site.algorithm.model.initial(0, 1)
    tensors = {name: tensor for name, tensor in {**start, **change}.items() if tensor is not None}
    good = {"kind": "round", "run": "another", "round": 1, "terms": plain(plan.terms())}
    with pytest.raises(FederationError, match=sentence):
        site.answer(Message({**good, **facts}, tensors).to_bytes())
    assert (tmp_path / "site-0" / "metrics.jsonl").read_text() == before
    assert (tmp_path / "site-0" / "model.safetensors").exists()
    site.answer(Message(good, start).to_bytes())
    assert len((tmp_path / "site-0" / "metrics.jsonl").read_text().splitlines()) == 1, "a new run, once it is one"


def test_half_a_line_in_a_sites_metrics_is_no_end_of_it(tmp_path: Path) -> None:
    federation = planted_federation(2)
    plan = make_plan(federation, "fedavg", rules={"segment": 2})
    sites = make_sites(plan, federation, tmp_path)
    make_coordinator(plan, tmp_path).run_segment(Memory(sites))
    path = tmp_path / "site-0" / "metrics.jsonl"
    path.write_text(path.read_text()[:-20])
    make_coordinator(plan, tmp_path).run_segment(Memory(sites))
    assert [json.loads(line)["round"] for line in path.read_text().splitlines()] == [1, 3]


def test_damaged_checkpoints_do_not_start_a_new_run_unasked(tmp_path: Path) -> None:
    federation = planted_federation(2)
    plan = make_plan(federation, "fedavg", rules={"segment": 2})
    make_coordinator(plan, tmp_path).run_segment(Memory(make_sites(plan, federation, tmp_path)))
    for path in (tmp_path / "run" / "checkpoint").glob("*.safetensors"):
        path.write_bytes(b"half")
    with pytest.raises(FederationError, match=r"no checkpoint in .*run is whole; put a copy of it back"):
        make_coordinator(plan, tmp_path)


def test_a_sites_folder_is_its_own(tmp_path: Path) -> None:
    federation = planted_federation(1)
    plan = make_plan(federation, "local")
    make_coordinator(plan, tmp_path).run_segment(Memory(make_sites(plan, federation, tmp_path)))
    assert stat.S_IMODE((tmp_path / "site-0").stat().st_mode) == 0o700


def test_a_new_run_starts_from_nothing(tmp_path: Path) -> None:
    federation = planted_federation(2)
    plan = make_plan(federation, "fedper")
    sites = make_sites(plan, federation, tmp_path)
    for attempt in ("first", "second"):
        make_coordinator(plan, tmp_path / attempt).run_segment(Memory(sites))
    lines = (tmp_path / "site-0" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2, 3]
    simulated = Simulation("fedper", federation)
    assert_same_models(final_models(sites_in(tmp_path)), simulated.chosen(chosen_rounds(sites_in(tmp_path))))


def test_the_coordinators_files_hold_nothing_of_a_sites_graph_or_private_state(tmp_path: Path) -> None:
    federation = planted_federation(2)
    plan = make_plan(federation, "fedper", rules={"segment": 1})
    make_coordinator(plan, tmp_path).run_segment(Memory(make_sites(plan, federation, tmp_path)))
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == ["checkpoint", "config.toml", "metrics.jsonl", "relations.bin", "status.json"]
    stored = [load_file(path).keys() for path in (tmp_path / "run" / "checkpoint").glob("*.safetensors")]
    assert all(name.startswith("server.convs") for names in stored for name in names)


def test_the_model_file_predicts(tmp_path: Path) -> None:
    federation = planted_federation(2)
    plan = make_plan(federation, "fedavg", rounds=2)
    make_coordinator(plan, tmp_path).run_segment(Memory(make_sites(plan, federation, tmp_path)))
    probabilities = final_models(sites_in(tmp_path))[0].probabilities(federation.graphs[0])
    assert probabilities.sum(axis=1) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("share_metrics", [True, False])
def test_the_coordinators_run_can_be_reported(share_metrics: bool, tmp_path: Path) -> None:
    """As any other run, though nobody there knows the graphs or, if the sites keep them, the metrics."""
    federation = planted_federation(3)
    plan = make_plan(federation, "fedgkd")
    sites = make_sites(plan, federation, tmp_path, share_metrics=share_metrics)
    make_coordinator(plan, tmp_path).run_segment(Memory(sites))
    found = CliRunner().invoke(app, ["report", str(tmp_path / "run"), "--out", str(tmp_path / "report")])
    assert found.exit_code == 0, found.output
    assert (tmp_path / "report" / "report.html").exists()
