"""What every algorithm of the dict keeps; a new one is covered by being in it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedgkd.algorithms import ALGORITHMS, Algorithm
from fedgkd.clients import Tensors
from fedgkd.data.federation import Federation
from fedgkd.data.graph import Graph
from fedgkd.data.own import write_federation
from fedgkd.engines import InProcessEngine
from fedgkd.experiments.config import make_config
from fedgkd.experiments.directory import RunDirectory
from fedgkd.experiments.runner import Run, resume
from tests.graphs import planted_federation

every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)
SMALL = {"hidden": 8, "threads": 1, "checkpoint_share": 1.0}


def _run(name: str, federation: Federation, directory: RunDirectory | None = None, **settings: Any) -> Run:
    config = make_config(("test", {"algorithm": name, "rounds": 3, **SMALL, **settings}))
    run = Run(config, federation, directory)
    if directory is not None:
        directory.create(config)
    run.start()
    return run


def _algorithm(name: str, federation: Federation) -> Algorithm:
    return _run(name, federation).algorithm


def _two_rounds(algorithm: Algorithm, graphs: Sequence[Graph], ids: Sequence[int]) -> list[Tensors]:
    """Uploads of two rounds of the clients' step, each alone or together; the download is the same for all."""
    engine = InProcessEngine(graphs, seed=0)
    for batch in engine.batches:
        batch.ids = tuple(ids[i] for i in batch.ids)
        algorithm.start(batch)
    start = algorithm.model.initial(0, len(graphs))
    download = {name: start[name] for name in algorithm.shared}
    uploads = []
    for round_ in (1, 2):
        results = []
        for batch in engine.batches:
            batch.round = round_
            results.append(algorithm.client_step(batch, {k: v[: len(batch)].clone() for k, v in download.items()}))
        uploads.append({k: torch.cat([r[k] for r in results]).clone() for k in results[0]})
    return uploads


@every_algorithm
def test_a_batch_of_n_equals_n_batches_of_one(name: str) -> None:
    federation = planted_federation(3)
    algorithm = _algorithm(name, federation)
    together = _two_rounds(algorithm, federation.graphs, [0, 1, 2])
    for client, graph in enumerate(federation.graphs):
        alone = _two_rounds(algorithm, [graph], [client])
        for all_of_them, one in zip(together, alone, strict=True):
            for tensor in one:
                torch.testing.assert_close(
                    all_of_them[tensor][client], one[tensor][0], rtol=1e-3, atol=1e-4, msg=f"{tensor}", equal_nan=True
                )


@every_algorithm
@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_batches_side_by_side_give_what_one_batch_gives(name: str, model: str) -> None:
    federation = planted_federation(6, nodes=24)
    results = []
    for threads in (1, 3, 3):
        run = _run(name, federation, threads=threads, model=model)
        assert len(run.engine.batches) == threads
        for _ in range(3):
            run.step()
        results.append(run.models | run.engine.collect(lambda batch: batch.state))
    for tensor, expected in results[0].items():
        torch.testing.assert_close(results[1][tensor], expected, rtol=1e-3, atol=1e-4, msg=tensor)
        assert torch.equal(results[1][tensor], results[2][tensor]), tensor


@every_algorithm
def test_padding_changes_nothing(name: str) -> None:
    """Clients of unequal size share a batch; the small one's upload is as if it were alone."""
    federation = planted_federation(2)
    small = federation.graphs[1].subgraph(np.arange(37))
    algorithm = _algorithm(name, federation)
    together = _two_rounds(algorithm, [federation.graphs[0], small], [0, 1])
    alone = _two_rounds(algorithm, [small], [1])
    for tensor in alone[1]:
        torch.testing.assert_close(together[1][tensor][1], alone[1][tensor][0], rtol=1e-3, atol=1e-4, equal_nan=True)


@every_algorithm
def test_another_clients_graph_leaves_my_upload_as_it_was(name: str) -> None:
    federation = planted_federation(3)
    changed = list(federation.graphs)
    changed[2] = replace(changed[2], x=np.flip(changed[2].x, axis=0).copy())
    algorithm = _algorithm(name, federation)
    before = _two_rounds(algorithm, federation.graphs, [0, 1, 2])
    after = _two_rounds(algorithm, changed, [0, 1, 2])
    for tensor in before[1]:
        assert before[1][tensor][:2].equal(after[1][tensor][:2]) or tensor == "received_macro_f1", tensor
    assert not before[1]["loss"][2].equal(after[1]["loss"][2])


@every_algorithm
def test_upload_names_are_exactly_those_declared(name: str) -> None:
    federation = planted_federation(2)
    algorithm = _algorithm(name, federation)
    for upload in _two_rounds(algorithm, federation.graphs, [0, 1]):
        assert upload.keys() == algorithm.uploads
        assert all(len(tensor) == 2 for tensor in upload.values())


def _everything(run: Run) -> Tensors:
    state = run.engine.collect(lambda batch: batch.state)
    kept = {f"kept.{k}": v for k, v in run.engine.collect(lambda batch: batch.kept).items()}
    return {k: v.clone() for k, v in (state | kept | {f"server.{k}": v for k, v in run.models.items()}).items()}


def _assert_identical(first: Tensors, second: Tensors) -> None:
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert tensor.equal(second[name]), name


@every_algorithm
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_same_seed_twice_is_bit_identical(name: str, participation: float) -> None:
    federation = planted_federation(4)
    runs = [_run(name, federation, participation=participation, seed=3) for _ in range(2)]
    results = [run.execute() for run in runs]
    _assert_identical(_everything(runs[0]), _everything(runs[1]))
    for result in results:
        result.pop("seconds")
    assert results[0] == results[1]
    other = _run(name, federation, participation=participation, seed=4)
    other.execute()
    changed = [not t.equal(_everything(runs[0])[k]) for k, t in _everything(other).items() if k.startswith("kept.")]
    assert any(changed)


@every_algorithm
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_stopped_and_resumed_is_bit_identical(name: str, participation: float, tmp_path: Path) -> None:
    federation = planted_federation(4)
    settings = {"rounds": 5, "participation": participation}
    whole = _run(name, federation, **settings)
    expected = whole.execute()
    stopped = _run(name, federation, RunDirectory(tmp_path / "run"), **settings)
    for _ in range(2):
        stopped.step()
    resumed = resume(RunDirectory(tmp_path / "run"), federation)
    assert resumed.round == 2
    found = resumed.execute()
    _assert_identical(_everything(whole), _everything(resumed))
    for result in (expected, found):
        result.pop("seconds")
    assert found == expected


@every_algorithm
def test_absent_clients_keep_their_state_untouched(name: str) -> None:
    federation = planted_federation(4)
    run = _run(name, federation, participation=0.5, rounds=10)
    for _ in range(4):
        before = _everything(run)
        present = run.step()["present"]
        assert len(present) == 2
        absent = [i for i in range(4) if i not in present]
        after = _everything(run)
        for tensor in before:
            if not tensor.startswith("kept."):
                assert before[tensor][absent].equal(after[tensor][absent]), tensor


@every_algorithm
def test_unequal_clients_are_bucketed_and_come_back_in_order(name: str) -> None:
    federation = planted_federation(3, nodes=60)
    graphs = (federation.graphs[0], federation.graphs[1].subgraph(np.arange(20)), federation.graphs[2])
    uneven = replace(federation, graphs=graphs)
    run = _run(name, uneven)
    assert [batch.ids for batch in run.engine.batches] == [(0, 2), (1,)]
    record = run.step()
    assert run.scores.nodes[:, 0].tolist() == [float(g.masks[0].sum()) for g in graphs if g.masks]
    assert len(record["trained"]["per_client"]["test"]) == 3


@every_algorithm
def test_beats_a_majority_guess_by_a_wide_margin(name: str) -> None:
    federation = planted_federation(4, nodes=80)
    result = _run(name, federation, rounds=25, hidden=32).execute()
    assert result["test_accuracy"] > 0.25 + 0.4


@every_algorithm
def test_a_client_whose_loss_is_not_finite_is_named_and_left_out(name: str) -> None:
    federation = planted_federation(3)
    run = _run(name, federation)
    warnings: list[str] = []
    run.events = replace(run.events, on_warning=warnings.append)
    run.step()
    for tensor in run.engine.batches[0].state:
        if tensor.startswith("adam.first."):
            run.engine.batches[0].state[tensor][1] = torch.nan
    record = run.step()
    assert record["left_out"] == [1]
    assert "client-1" in warnings[0]
    assert all(t.isfinite().all() for t in _everything(run).values())
    assert run.step()["left_out"] == []


KILLS = 20


def test_killed_at_random_moments_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    """Killed with SIGKILL wherever it hits; the models and relations at the end are bit for bit the same."""
    write_federation(planted_federation(4), tmp_path / "graphs")
    settings = ["hidden=16", "rounds=700", "patience=0", "threads=1", "participation=0.75"]
    command = [sys.executable, "-m", "fedgkd", "run", "--graphs", str(tmp_path / "graphs"), "--set", *settings, "--out"]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)

    folder = tmp_path / "killed"
    go_on = [sys.executable, "-m", "fedgkd", "resume", str(folder)]
    moments = np.random.default_rng(0).uniform(0.0, 0.1, KILLS)
    for kill, seconds in enumerate(moments):
        _kill_after(seconds, go_on if kill else [*command, str(folder)], folder)
    assert not (folder / "result.json").exists()
    subprocess.run(go_on, check=True, capture_output=True)
    for client in range(4):
        model = f"models/client-{client}.safetensors"
        assert (folder / model).read_bytes() == (tmp_path / "whole" / model).read_bytes()
    with np.load(folder / "relations.npz") as killed, np.load(tmp_path / "whole" / "relations.npz") as whole:
        for matrix in ("R", "S", "Q"):
            np.testing.assert_array_equal(killed[matrix], whole[matrix])


def _kill_after(seconds: float, command: list[str], folder: Path) -> None:
    """Start a run, wait until it works on its rounds, and kill it after that many seconds."""
    before = _progress(folder)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while _progress(folder) == before and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(seconds)
    assert process.poll() is None, "the run ended before it could be killed"
    process.kill()
    process.wait()


def _progress(folder: Path) -> int:
    metrics = folder / "metrics.jsonl"
    return metrics.stat().st_mtime_ns if metrics.exists() else 0
