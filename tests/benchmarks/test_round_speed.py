"""The benchmark compares programs that compute the same, and writes what it measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.agreement import STEPS, TOLERATED, different_share, disagreement
from benchmarks.epochs import time_epochs
from benchmarks.floor import Floor
from benchmarks.openfgl_rounds import NotAvailable, rounds
from benchmarks.ours import Ours, configure
from benchmarks.plain import PlainFederation, from_plain, to_plain
from benchmarks.plain_rounds import PlainRounds
from benchmarks.round_speed import main
from benchmarks.rounds import Tally, step
from benchmarks.targets import Verdict, judge
from benchmarks.timing import race
from benchmarks.workloads import find_workloads
from fedgkd.data.federation import Federation
from tests.graphs import planted_federation, random_graph

ALGORITHMS = ("fedavg", "fedgkd")


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """A run sets the threads of the whole process."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def sparse_federation() -> Federation:
    graphs = tuple(random_graph(20 + i, 40, sparse=True, seed=i, name=f"client-{i}") for i in range(3))
    return Federation(graphs, dataset="random", setting="own-graphs")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("federation", [planted_federation(), sparse_federation()], ids=["dense", "sparse"])
def test_the_plain_loop_trains_the_same_weights(federation: Federation, algorithm: str) -> None:
    assert disagreement(federation, algorithm, 1, {}) == 0.0


def test_another_loss_would_be_noticed() -> None:
    federation = planted_federation()
    config = configure("fedgkd", 1, {"dropout": 0.0, "proximal": 1.0})
    ours = Ours(config, federation)
    without = configure("fedavg", 1, {"dropout": 0.0}).method
    plain = PlainFederation(federation, without, ours.received, config.run.hidden, cached=False)
    plain.train(STEPS)
    uploads = ours.train(STEPS)
    assert different_share(uploads, plain.weights(), config.method.lr) > 100 * TOLERATED


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_plain_round_gives_every_client_the_same_mixture(algorithm: str) -> None:
    federation = planted_federation(groups=2)
    config = configure(algorithm, 1, {"dropout": 0.0})
    ours = Ours(config, federation)
    plain = PlainFederation(federation, config.method, ours.received, config.run.hidden, cached=True)
    network = config.network(federation.num_features, federation.num_classes)
    PlainRounds(plain, algorithm, config.method, network, config.run.seed).step()
    step(ours)
    mixed = from_plain(plain.received)
    for name, tensor in ours.run.models.items():
        torch.testing.assert_close(tensor, mixed[name], atol=1e-4, rtol=1e-3)


def test_weights_survive_the_way_to_the_plain_layout_and_back() -> None:
    config = configure("fedavg", 1, {})
    start = config.network(7, 3).initial(0, 2)
    back = from_plain([to_plain(start, row) for row in range(2)])
    assert back.keys() == start.keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in start.items())


def test_the_floor_counts_what_training_changes() -> None:
    federation = sparse_federation()
    parameters = 40 * 128 + 128 + 128 * 128 + 128 + 128 * 3 + 3
    ours = Ours(configure("fedavg", 1, {}), federation)
    assert ours.changed_parameters() == [3 * parameters]  # weight decay moves all
    free = Ours(configure("fedavg", 1, {"weight_decay": 0.0}), federation)
    unused = sum(40 - len(set(graph.x.indices)) for graph in federation.graphs)  # type: ignore[union-attr]
    assert free.changed_parameters()[0] <= 3 * parameters - unused * 128
    Floor(ours.batches, ours.changed_parameters(), 128, 0.01, 1e-6).train(2)


def test_the_best_turn_counts_and_neither_the_first_nor_a_jobs_first_time_in_a_turn() -> None:
    times = iter([0.1, 0.1, 9.0, 9.0, 0.1, 3.0, 0.1, 2.0, 0.1, 5.0, 0.1, 4.0])
    assert race({"a": lambda: next(times), "b": lambda: next(times)}, repeats=2) == {"a": 3.0, "b": 2.0}


def test_shares_of_a_round_add_up() -> None:
    tally = Tally()
    tally.add(2.0, {"training": 1.0, "server": 0.5, "total": 1.9})
    tally.add(2.0, {"training": 1.0, "checkpoint": 1.0})
    assert tally.shares() == {
        "training": 0.5,
        "distillation": 0.0,
        "server": 0.125,
        "evaluation": 0.0,
        "checkpoint": 0.25,
        "other": 0.125,
    }


def test_the_command_measures_a_tiny_federation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "results" / "tiny.json"
    options = ["--only", "tiny", "--repeats", "1", "--threads", "1", "--rounds", "3", "--cached"]
    main([*options, "--part", "workloads", "--part", "memory", "--out", str(file)])
    printed = capsys.readouterr().out
    assert "One local epoch" in printed
    results = json.loads(file.read_text(encoding="utf-8"))
    assert results["machine"]["threads"] == 1
    work = results["workloads"]["tiny"]
    assert (work["clients"], work["nodes"], work["features"]) == (4, 240, 16)
    for algorithm in ALGORITHMS:
        figures = work["algorithms"][algorithm]
        assert figures["epoch"].keys() == {"ours", "plain", "plain_cached", "floor", "marginal"}
        assert figures["round"].keys() == {"ours", "plain"}
        assert all(took > 0 for took in figures["round"].values())
        assert sum(figures["stretch"]["shares"].values()) == pytest.approx(1)
    assert results["memory"]["tiny"]["bytes"]["peak"] > 0
    assert results["targets"] == [verdict.record() for verdict in judge(results)]

    main(["--show", str(file), "--markdown"])
    assert "| tiny, fedgkd |" in capsys.readouterr().out


def test_openfgl_that_does_not_run_says_why() -> None:
    """This environment does not have it."""
    federation = find_workloads(["tiny"])[0].federation()
    missing = pytest.raises(NotAvailable, match="it stopped: ModuleNotFoundError: No module named 'openfgl'")
    with missing, rounds(Path(sys.executable), federation, threads=1, epochs=1, hidden=8):
        pass


def test_an_unknown_workload_is_named() -> None:
    with pytest.raises(SystemExit, match="no workload 'kora-10'; known are cora-10"):
        main(["--only", "kora-10"])


def test_targets_are_judged_on_the_right_side() -> None:
    epoch = {"ours": 1.0, "plain": 6.0, "floor": 0.5}
    shares = {"evaluation": 0.15, "checkpoint": 0.06}
    figures: dict[str, Any] = {"epoch": epoch, "stretch": {"shares": shares}}
    algorithms = {"fedavg": figures | {"round": {"ours": 1.0}}, "fedgkd": figures | {"round": {"ours": 1.3}}}
    verdicts = {
        verdict.what: verdict.verdict for verdict in judge({"workloads": {"cora-10": {"algorithms": algorithms}}})
    }
    assert verdicts == {
        "plain / ours, local epoch": "met",
        "ours / floor, local epoch": "missed",
        "evaluation, share of a round": "met",
        "checkpoint, share of a round": "missed",
        "FedGKD / FedAvg, round": "met",
    }


def test_what_cannot_be_is_not_called_met() -> None:
    """Faster than the floor, or checkpoints that cost nothing: something was not measured."""
    assert Verdict("ours / floor", "somewhere", 0.8, 1.5, plausible=0.95).verdict == "doubtful"
    assert Verdict("ours / floor", "somewhere", 1.0, 1.5, plausible=0.95).verdict == "met"


def test_clients_are_judged_against_the_next_smaller_number() -> None:
    runs = [
        {"clients": 10, "parameters": 10, "round": 2.0},
        {"clients": 200, "parameters": 200, "round": 3.0},
        {"clients": 1000, "parameters": 1000, "round": 30.0},
        {"failed": "out of memory"},
    ]
    assert [(verdict.where, verdict.verdict) for verdict in judge({"clients": runs})] == [
        ("10 to 200 clients", "met"),
        ("200 to 1000 clients", "missed"),
        ("10 to 1,000 clients", "missed"),
    ]


def test_an_epoch_counts_what_training_does_once_a_round() -> None:
    times = time_epochs({"ours": lambda epochs: 6.0 + epochs}, epochs=3, more=10, repeats=1)
    assert times == {"ours": 3.0, "marginal": {"ours": 1.0}}
