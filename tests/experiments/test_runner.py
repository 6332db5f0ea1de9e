"""One run: rounds, who takes part, what is scored and kept, what is written, and taking it up again."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedgkd import ClientBatch, Mixing, RunError, ServerRound, Tensors
from fedgkd.collaboration import spearman
from fedgkd.data.federation import Federation
from fedgkd.data.statistics import label_divergence
from fedgkd.data.unlike import with_concepts
from fedgkd.errors import SettingError
from fedgkd.experiments.checkpoint import _digest
from fedgkd.experiments.config import make_config
from fedgkd.experiments.directory import RunDirectory
from fedgkd.experiments.model_file import PersonalModel
from fedgkd.experiments.runner import Events, Run, resume
from fedgkd.training.local import personal_model
from tests.graphs import planted_federation

SMALL = {"algorithm": "fedgkd", "hidden": 8, "threads": 1, "rounds": 3, "checkpoint_share": 1.0}


def make(federation: Federation | None = None, folder: Path | None = None, **settings: Any) -> Run:
    config = make_config(("test", SMALL | settings))
    directory = None if folder is None else RunDirectory(folder)
    run = Run(config, federation or planted_federation(4), directory)
    if directory is not None:
        directory.create(config)
    run.start()
    return run


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def everything(run: Run) -> Tensors:
    """All tensors of a run, copied."""
    state = run.engine.collect(lambda batch: batch.state)
    kept = {f"kept.{name}": tensor for name, tensor in run.engine.collect(lambda batch: batch.kept).items()}
    server = {f"server.{name}": tensor for name, tensor in run.models.items()}
    return {name: tensor.clone() for name, tensor in (state | kept | server).items()}


def assert_equal_runs(first: Run, second: Run) -> None:
    ours, theirs = everything(first), everything(second)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert tensor.equal(theirs[name]), name
    results = [run.result() for run in (first, second)]
    for result in results:
        result.pop("seconds")
    assert results[0] == results[1]


def with_masks(federation: Federation, client: int, **masks: bool) -> Federation:
    """The federation with one client's masks emptied by name, as ``test=False``."""
    graphs = list(federation.graphs)
    empty = {f"{name}_mask": np.full(graphs[client].num_nodes, value) for name, value in masks.items()}
    graphs[client] = replace(graphs[client], **empty)
    return replace(federation, graphs=tuple(graphs))


# --- what is written -------------------------------------------------------------------------------------------

RESULT = (
    "algorithm dataset clients setting seed rounds best_round test_accuracy val_accuracy test_accuracy_weighted "
    "test_accuracy_received test_accuracy_last per_client bytes_up bytes_down seconds versions partition_hash"
)


def test_the_files_of_a_run(tmp_path: Path) -> None:
    federation = planted_federation(4)
    result = make(federation, tmp_path).execute()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "SHA256SUMS",
        "clients.json",
        "config.toml",
        "metrics.jsonl",
        "models",
        "relations.npz",
        "result.json",
    ]
    written = json.loads((tmp_path / "result.json").read_text())
    assert written == result
    assert written.keys() >= set(RESULT.split())
    assert written["partition_hash"] == federation.partition_hash
    assert len(written["per_client"]) == 4
    assert [line["round"] for line in records(tmp_path)] == [1, 2, 3]


def test_a_round_is_recorded_in_full(tmp_path: Path) -> None:
    run = make(folder=tmp_path)
    run.execute()
    last = records(tmp_path)[-1]
    assert len(last["loss_per_client"]) == 4
    assert last["loss"] == pytest.approx(np.mean(last["loss_per_client"]))
    for model in ("trained", "received", "selected"):
        assert last[model].keys() == {"accuracy", "accuracy_weighted", "macro_f1", "per_client", "macro_f1_per_client"}
        for split in ("train", "val", "test"):
            clients = last[model]["per_client"][split]
            assert last[model]["accuracy"][split] == pytest.approx(np.mean(clients))
            nodes = [int(getattr(graph, f"{split}_mask").sum()) for graph in run.federation.graphs]
            assert last[model]["accuracy_weighted"][split] == pytest.approx(np.average(clients, weights=nodes))
            assert last[model]["macro_f1"][split] == pytest.approx(np.mean(last[model]["macro_f1_per_client"][split]))
    assert last["seconds"].keys() >= {"training", "distillation", "server", "evaluation", "total"}
    assert all(seconds > 0 for seconds in last["seconds"].values())
    assert (last["present"], last["left_out"]) == ([0, 1, 2, 3], [])


def test_relations_and_their_quality(tmp_path: Path) -> None:
    run = make(folder=tmp_path)
    run.execute()
    with np.load(tmp_path / "relations.npz") as stored:
        relations = {name: stored[name] for name in ("R", "S", "Q")}
    assert all(matrix.shape == (3, 4, 4) for matrix in relations.values())
    np.testing.assert_array_equal(relations["R"].diagonal(axis1=1, axis2=2), 1.0)
    np.testing.assert_allclose(relations["Q"].sum(axis=2), 1.0, rtol=1e-5)
    truth = label_divergence(run.federation)
    for matrix, record in zip(relations["R"], records(tmp_path), strict=True):
        quality = spearman(matrix.astype(np.float64), truth)
        assert record["relation_quality"] == (None if math.isnan(quality) else pytest.approx(quality, abs=1e-6))


def test_an_algorithm_without_a_relation_has_only_q(tmp_path: Path) -> None:
    make(folder=tmp_path, algorithm="fedavg").execute()
    with np.load(tmp_path / "relations.npz") as stored:
        assert np.isnan(stored["R"]).all()
        assert np.isnan(stored["S"]).all()
        np.testing.assert_array_equal(stored["Q"], 0.25)
    assert records(tmp_path)[0]["relation_quality"] is None


def test_bytes_are_those_of_what_is_sent() -> None:
    run = make(algorithm="fedper", participation=0.5)
    record = run.step()
    shared = sum(math.prod(p.shape) for name, p in run.algorithm.model.parameters.items() if name.startswith("convs."))
    report = 4 * 3 * 8 + 4 + 3 * 8  # four scores and the counts per split in float64, the loss in float32
    assert record["bytes_down"] == 4 * shared
    assert record["bytes_up"] == 4 * shared + report
    run.step()
    assert run.result()["bytes_up"] == 2 * 2 * record["bytes_up"]  # two rounds of two clients


def test_personal_models_are_those_of_the_best_round(tmp_path: Path) -> None:
    federation = planted_federation(4)
    result = make(federation, tmp_path, rounds=6).execute()
    for client, graph in enumerate(federation.graphs):
        model = PersonalModel.load(tmp_path / "models" / f"client-{client}.safetensors")
        right = model.probabilities(graph).argmax(1) == graph.y
        assert right[graph.test_mask].mean() == pytest.approx(result["per_client"][client])
        assert model.origin == {
            "algorithm": "fedgkd",
            "dataset": "planted",
            "round": result["best_round"],
            "client": f"client-{client}",
        }


# --- when it ends ----------------------------------------------------------------------------------------------


def test_patience_ends_a_run_that_does_not_get_better() -> None:
    """A learning rate of nearly nothing: the first round is the best."""
    still = {"rounds": 20, "lr": 1e-12}
    stopped = make(patience=4, **still).execute()
    assert (stopped["rounds"], stopped["best_round"]) == (5, 1)
    assert make(patience=0, **still).execute()["rounds"] == 20


def test_a_new_best_round_starts_the_count_again() -> None:
    run = make(patience=3, rounds=60)
    result = run.execute()
    assert 3 < result["rounds"] < 60
    assert result["rounds"] == result["best_round"] + 3


def test_the_best_round_is_chosen_by_validation_and_not_by_test(tmp_path: Path) -> None:
    result = make(folder=tmp_path, rounds=15).execute()
    validation = [line["selected"]["accuracy"]["val"] for line in records(tmp_path)]
    assert result["best_round"] == 1 + int(np.argmax(validation))
    assert result["test_accuracy"] == records(tmp_path)[result["best_round"] - 1]["selected"]["accuracy"]["test"]
    assert result["test_accuracy_last"] == records(tmp_path)[-1]["selected"]["accuracy"]["test"]
    received = [line["received"]["accuracy"]["val"] for line in records(tmp_path)]
    assert result["best_round_received"] == 1 + int(np.argmax(received))


# --- who is scored by which model ------------------------------------------------------------------------------


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_clients_that_choose_keep_the_better_of_two_models(tmp_path: Path, participation: float) -> None:
    """Two groups that mislead each other: what FedAvg hands out is often worse than what a client trained."""
    federation = planted_federation(4, groups=2)
    settings = {"algorithm": "fedavg", "select": "client", "rounds": 12, "participation": participation, "lr": 0.05}
    run = make(federation, tmp_path, **settings)
    result = run.execute()
    best = records(tmp_path)[result["best_round"] - 1]
    trained, received = (best[model]["per_client"]["val"] for model in ("trained", "received"))
    assert best["selected"]["per_client"]["val"] == np.maximum(trained, received).tolist()
    for client, (model, graph) in enumerate(zip(run.personal_models(), federation.graphs, strict=True)):
        right = model.probabilities(graph).argmax(1) == graph.y
        assert right[graph.val_mask].mean() == pytest.approx(max(trained[client], received[client]))
        assert right[graph.test_mask].mean() == pytest.approx(result["per_client"][client])
    choices = [[t < r for t, r in zip(*(line[m]["per_client"]["val"] for m in ("trained", "received")), strict=True)]
               for line in records(tmp_path) if None not in line["trained"]["per_client"]["val"]]  # fmt: skip
    assert any(any(row) for row in choices), "somebody preferred the received model, or this shows nothing"
    assert result["scored_model"] == "chosen by each client"


@pytest.mark.parametrize("algorithm", ["fedgkd", "fedpub", "fedsage_plus"])
def test_a_client_may_keep_the_model_half_way_from_received_to_trained(tmp_path: Path, algorithm: str) -> None:
    federation = planted_federation(3)
    settings = {"algorithm": algorithm, "select": "midpoint", "rounds": 6, "lr": 0.05}
    run = make(federation, tmp_path, **settings)
    result = run.execute()
    best = records(tmp_path)[result["best_round"] - 1]
    for client, (model, graph) in enumerate(zip(run.personal_models(), federation.graphs, strict=True)):
        right = model.probabilities(graph).argmax(1) == graph.y
        for split, mask in (("val", graph.val_mask), ("test", graph.test_mask)):
            assert right[mask].mean() == pytest.approx(best["selected"]["per_client"][split][client])
    assert result["test_accuracy"] == pytest.approx(best["selected"]["accuracy"]["test"])
    assert result["scored_model"] == "half-way from received to trained"
    plainly = make(federation, **settings | {"select": "trained"})
    again = [plainly.step() for _ in range(6)]
    for line, other in zip(records(tmp_path), again, strict=True):
        assert line["trained"] == other["trained"], "what is kept changes nothing of the training"
    for ours, theirs in zip(run.engine.batches, plainly.engine.batches, strict=True):
        for name, trained in personal_model(theirs).items():
            assert torch.equal(ours.state["aside." + name], theirs.received[name].lerp(trained, 0.5)), name


@pytest.mark.parametrize("select", ["client", "midpoint"])
def test_choosing_clients_resume_as_if_never_stopped(tmp_path: Path, select: str) -> None:
    federation = planted_federation(4, groups=2)
    settings = {"algorithm": "fedavg", "select": select, "rounds": 8, "participation": 0.5, "lr": 0.05}
    whole = make(federation, **settings)
    whole.execute()
    stopped = make(federation, tmp_path, **settings)
    for _ in range(5):
        stopped.step()
    resumed = resume(RunDirectory(tmp_path), federation)
    resumed.execute()
    assert_equal_runs(whole, resumed)


# --- who takes part --------------------------------------------------------------------------------------------


def test_participation_is_a_share_of_the_clients() -> None:
    run = make(planted_federation(5), participation=0.4, rounds=12)
    seen = [run.step()["present"] for _ in range(12)]
    assert all(len(present) == 2 and present == sorted(present) for present in seen)
    assert len({tuple(present) for present in seen}) > 3
    assert {client for present in seen for client in present} == set(range(5))


def test_at_least_one_client_is_asked() -> None:
    run = make(planted_federation(3), participation=0.01)
    assert len(run.step()["present"]) == 1


def test_some_fail_to_answer() -> None:
    run = make(planted_federation(4), dropout_rate=0.5, algorithm="fedavg", local_epochs=1)
    answered = [len(run.step()["present"]) for _ in range(40)]
    assert np.mean(answered) == pytest.approx(2.0, abs=0.5)
    assert len(set(answered)) > 2


def test_rounds_in_which_nobody_answers(tmp_path: Path) -> None:
    run = make(planted_federation(2), tmp_path, dropout_rate=0.9, rounds=12, patience=0)
    silent = 0
    for _ in range(12):
        before = everything(run)
        record = run.step()
        if not record["present"]:
            silent += 1
            assert (record["bytes_up"], record["bytes_down"], record["relation_quality"]) == (0, 0, None)
            after = everything(run)
            assert all(tensor.equal(after[name]) for name, tensor in before.items())
    assert 3 < silent < 12
    result = run.execute()
    assert result["rounds"] == 12
    with np.load(tmp_path / "relations.npz") as stored:
        assert np.isnan(stored["Q"]).all(axis=(1, 2)).sum() == silent


def test_a_run_in_which_somebody_never_took_part_still_ends() -> None:
    run = make(planted_federation(4), participation=0.25, rounds=2)
    result = run.execute()
    assert result["best_round"] == 2
    assert sum(value is None for value in result["per_client"]) >= 2
    assert len(run.personal_models()) == 4


def test_clients_that_never_took_part_are_counted_and_warned_of() -> None:
    warnings: list[str] = []
    run = make(planted_federation(5), participation=0.2, rounds=2, seed=1)
    run.events = Events(on_warning=warnings.append)
    result = run.execute()
    absent = result["per_client"].count(None)
    assert absent >= 3
    assert (result["clients_never_present"], result["chosen_by_validation"]) == (absent, False)
    assert warnings == [
        f"{absent} of 5 clients never took part: no figure has them, and their models are untrained; "
        "raise rounds or participation"
    ]


def warned(run: Run) -> list[str]:
    warnings: list[str] = []
    run.events = Events(on_warning=warnings.append)
    run.execute()
    return warnings


def test_mixtures_of_few_models_are_recorded_and_warned_of_once(tmp_path: Path) -> None:
    run = make(planted_federation(8), tmp_path, algorithm="fedgkd", rounds=3, tau=9.0, tau_s=50.0, relation="cosine")
    (warning,) = [sentence for sentence in warned(run) if "of 8 clients" in sentence]
    assert warning.startswith("round 1: the mixtures are made of the models of about 1 of 8 clients")
    for record in records(tmp_path):
        assert record["effective_donors"] < 2
    assert warned(make(planted_federation(8), algorithm="fedgkd", rounds=3)) == []


def test_every_round_says_how_much_of_its_own_a_client_keeps(tmp_path: Path) -> None:
    run = make(planted_federation(4), tmp_path, algorithm="fedavg", rounds=2)
    assert warned(run) == []
    assert [record["own_share"] for record in records(tmp_path)] == [pytest.approx(0.25)] * 2
    assert [record["effective_donors"] for record in records(tmp_path)] == [pytest.approx(4.0)] * 2


def test_received_models_that_are_worth_nothing_are_warned_of() -> None:
    """Every client names the classes in a way of its own: the mean of all models knows none."""
    unlike = with_concepts(planted_federation(4), 4)
    (warning,) = warned(make(unlike, algorithm="fedavg", rounds=20, local_epochs=5, patience=0))
    assert "received models have a validation accuracy of" in warning
    assert warned(make(planted_federation(4), algorithm="fedavg", rounds=20, local_epochs=5, patience=0)) == []


def test_matrices_know_only_those_present(tmp_path: Path) -> None:
    run = make(planted_federation(4), tmp_path, participation=0.5, rounds=1)
    run.execute()
    (record,) = records(tmp_path)
    rows = np.isin(np.arange(4), record["present"])
    with np.load(tmp_path / "relations.npz") as stored:
        assert (np.isfinite(stored["Q"][0]) == np.outer(rows, rows)).all()


# --- clients that are special ----------------------------------------------------------------------------------


def test_a_client_without_test_or_validation_nodes_is_left_out_of_the_mean_and_counted() -> None:
    federation = with_masks(with_masks(planted_federation(4), 1, test=False), 2, val=False)
    result = make(federation).execute()
    assert (result["clients_without_test_nodes"], result["clients_without_val_nodes"]) == (1, 1)
    known = [value for value in result["per_client"] if value is not None]
    assert result["per_client"][1] is None
    assert len(known) == 3
    assert result["test_accuracy"] == pytest.approx(np.mean(known))


def test_without_any_validation_node_the_last_round_counts() -> None:
    federation = planted_federation(2)
    for client in range(2):
        federation = with_masks(federation, client, val=False)
    result = make(federation, rounds=4, patience=1).execute()
    assert (result["rounds"], result["best_round"], result["val_accuracy"]) == (4, 4, None)
    assert result["test_accuracy"] == result["test_accuracy_last"]
    assert result["test_accuracy"] is not None


def test_one_client_alone(tmp_path: Path) -> None:
    result = make(planted_federation(1), tmp_path).execute()
    assert result["clients"] == 1
    assert result["test_accuracy"] == result["per_client"][0]


def test_a_task_feature_that_is_not_finite_is_kept_out() -> None:
    """The loss is fine, but one NaN in the relation would poison every client's mixture."""
    warnings: list[str] = []
    run = make(planted_federation(3))
    run.events = Events(on_warning=warnings.append)
    work = run.algorithm.client_step

    def spoil(clients: ClientBatch, download: Tensors) -> Tensors:
        upload = work(clients, download)
        upload["task_feature"][1, 0, 0] = torch.inf
        return upload

    run.algorithm.client_step = spoil  # type: ignore[method-assign]
    record = run.step()
    assert record["left_out"] == [1]
    assert warnings == [
        "round 1: the loss or upload of client-1 is not finite; "
        "it is kept out of this round's mixture and goes back to the model it received"
    ]
    assert all(tensor.isfinite().all() for tensor in run.models.values())


def test_a_round_in_which_everybody_fails_changes_no_model() -> None:
    run = make(planted_federation(2))
    run.step()
    for tensor in run.engine.batches[0].state:
        if tensor.startswith("adam.first."):
            run.engine.batches[0].state[tensor][:] = torch.nan
    before = {name: tensor.clone() for name, tensor in run.models.items()}
    record = run.step()
    assert record["left_out"] == [0, 1]
    assert all(tensor.equal(before[name]) for name, tensor in run.models.items())
    assert run.step()["left_out"] == []


# --- taking a run up again -------------------------------------------------------------------------------------


def stopped_run(folder: Path, federation: Federation, rounds: int = 4, **settings: Any) -> None:
    run = make(federation, folder, rounds=6, **settings)
    for _ in range(rounds):
        run.step()


@pytest.mark.parametrize(("line", "name"), [("lr = 0.01", "lr"), ("rounds = 6", "rounds"), ("seed = 0", "seed")])
def test_a_changed_config_is_refused_by_name(tmp_path: Path, line: str, name: str) -> None:
    federation = planted_federation(2)
    stopped_run(tmp_path, federation)
    config = tmp_path / "config.toml"
    assert f"\n{line} " in config.read_text()
    config.write_text(config.read_text().replace(f"\n{line} ", f"\n{name} = 3 "))
    with pytest.raises(RunError) as caught:
        resume(RunDirectory(tmp_path), federation)
    assert str(caught.value) == (f"config.toml has changed since the checkpoint ({name}); start a new run instead")
    assert len(records(tmp_path)) == 4  # nothing lost


@pytest.mark.parametrize("field", ["data", "config", "best", "totals", "scores", "records"])
@pytest.mark.parametrize("value", [None, [], "text", {"a": 1}])
def test_a_checkpoint_of_another_version_is_said_in_a_sentence(field: str, value: object, tmp_path: Path) -> None:
    federation = planted_federation(2, nodes=20)
    stopped_run(tmp_path, federation)
    for path in (tmp_path / "checkpoint").glob("state-*.json"):
        said = json.loads(path.read_text())
        said.pop("sha256")
        said["facts"][field] = value
        digest = _digest(said, [path.with_suffix(".safetensors").read_bytes()])
        path.write_text(json.dumps(said | {"sha256": digest}))
    if (field, value) == ("records", None):  # as versions wrote it that had no digests
        resume(RunDirectory(tmp_path), federation)
        return
    with pytest.raises(RunError, match=r"not one of this version|has changed|are not those|is damaged"):
        resume(RunDirectory(tmp_path), federation)


@pytest.mark.parametrize("what", ["x", "edge_index", "y", "split"])
def test_other_data_is_refused(tmp_path: Path, what: str) -> None:
    federation = planted_federation(2)
    stopped_run(tmp_path, federation)
    graph = federation.graphs[1]
    changed = {
        "x": lambda: replace(graph, x=graph.x + 1),
        "edge_index": lambda: replace(graph, edge_index=graph.edge_index[:, 1:]),
        "y": lambda: replace(graph, y=np.roll(graph.y, 1)),
        "split": lambda: replace(graph, val_mask=graph.test_mask, test_mask=graph.val_mask),
    }[what]()
    with pytest.raises(RunError, match="the clients' graphs are not those of the checkpoint"):
        resume(RunDirectory(tmp_path), replace(federation, graphs=(federation.graphs[0], changed)))


def flip_last_byte(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 255]))


@pytest.mark.parametrize(
    ("damaged", "goes_on", "sentence"),
    [
        (["state-0.safetensors"], 3, "the checkpoint state-0 is damaged; the run goes on from round 3"),
        (["state-0.json"], 3, "the checkpoint state-0 is damaged; the run goes on from round 3"),
        (
            ["state-0.safetensors", "state-1.safetensors"],
            0,
            "the checkpoint state-0 is damaged; the run starts anew",
        ),
    ],
)
def test_a_damaged_checkpoint_falls_back_and_says_so(
    tmp_path: Path, damaged: list[str], goes_on: int, sentence: str
) -> None:
    federation, warnings = planted_federation(3), list[str]()
    whole = make(federation, rounds=6)
    whole.execute()
    stopped_run(tmp_path, federation)
    for name in damaged:
        flip_last_byte(tmp_path / "checkpoint" / name)
    resumed = resume(RunDirectory(tmp_path), federation, Events(on_warning=warnings.append))
    assert (resumed.round, len(records(tmp_path))) == (goes_on, goes_on)
    assert warnings[0] == sentence
    resumed.execute()
    assert_equal_runs(whole, resumed)


def test_damaged_best_models_fall_back_too(tmp_path: Path) -> None:
    federation, warnings = planted_federation(3), list[str]()
    whole = make(federation, rounds=6)
    whole.execute()
    run = make(federation, tmp_path, rounds=6)
    while run.best.round < run.round or run.round < 2:  # until a round is the best so far
        run.step()
    for path in (tmp_path / "checkpoint").glob("best-*.safetensors"):
        flip_last_byte(path)
    resumed = resume(RunDirectory(tmp_path), federation, Events(on_warning=warnings.append))
    assert resumed.round == 0
    assert warnings[0] == f"the best models in the checkpoint of round {run.round} are damaged; the run starts anew"
    resumed.execute()
    assert_equal_runs(whole, resumed)


def test_without_checkpoints_a_run_starts_anew(tmp_path: Path) -> None:
    federation = planted_federation(2)
    whole = make(federation, rounds=6, checkpoint_every=0)
    whole.execute()
    stopped_run(tmp_path, federation, checkpoint_every=0)
    assert not (tmp_path / "checkpoint").exists()
    resumed = resume(RunDirectory(tmp_path), federation)
    assert resumed.round == 0
    resumed.execute()
    assert_equal_runs(whole, resumed)


def test_checkpoints_every_few_rounds(tmp_path: Path) -> None:
    federation = planted_federation(2)
    whole = make(federation, rounds=6, checkpoint_every=3)
    whole.execute()
    stopped_run(tmp_path, federation, rounds=5, checkpoint_every=3)
    resumed = resume(RunDirectory(tmp_path), federation)
    assert resumed.round == 3
    resumed.execute()
    assert_equal_runs(whole, resumed)
    assert [line["round"] for line in records(tmp_path)] == [1, 2, 3, 4, 5, 6]


def test_a_resumed_run_that_stays_idle_keeps_its_models(tmp_path: Path) -> None:
    """Checkpoints are overwritten while what was read from them may still be in use."""
    federation = planted_federation(2)
    settings = {"dropout_rate": 0.9, "patience": 0, "rounds": 14}
    whole = make(federation, **settings)
    whole.execute()
    run = make(federation, tmp_path, **settings)
    for _ in range(4):
        run.step()
    resumed = resume(RunDirectory(tmp_path), federation)
    resumed.execute()
    assert_equal_runs(whole, resumed)


def test_a_run_that_was_killed_while_it_finished(tmp_path: Path) -> None:
    federation = planted_federation(2)
    run = make(federation, tmp_path)
    for _ in range(3):
        run.step()
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "client-0.safetensors").write_bytes(b"half")
    result = resume(RunDirectory(tmp_path), federation).execute()
    assert result["rounds"] == 3
    PersonalModel.load(tmp_path / "models" / "client-0.safetensors")


def test_checkpoints_beyond_their_share_are_left_out_and_the_run_resumes_all_the_same(
    tmp_path: Path,
) -> None:
    """With next to no share, only the first round's checkpoint is written; the rounds after it are computed again."""
    federation = planted_federation(4)
    whole = make(federation, rounds=5)
    expected = whole.execute()
    stopped = make(federation, tmp_path / "run", rounds=5, checkpoint_share=1e-9)
    for _ in range(3):
        stopped.step()
    resumed = resume(RunDirectory(tmp_path / "run"), federation)
    assert resumed.round == 1
    found = resumed.execute()
    assert found["per_client"] == expected["per_client"]
    assert found["best_round"] == expected["best_round"]


@pytest.mark.parametrize(("seconds", "due"), [(18.0, False), (18.9, False), (19.1, True), (100.0, True)])
def test_a_checkpoint_that_would_take_more_than_its_share_waits(seconds: float, due: bool) -> None:
    """One has taken a second so far; a tenth of the time is two seconds of 20."""
    run = make(planted_federation(2), checkpoint_share=0.1)
    run.round, run.totals["seconds"] = 1, seconds
    run._checkpoints_took = run._longest_checkpoint = 1.0
    assert run._checkpoint_is_due() is due


def test_a_resumed_run_keeps_the_models_of_absent_clients(tmp_path: Path) -> None:
    """The best models may be kept in a round in which a client is absent: its own is that of its last round."""
    federation = planted_federation(8)
    settings = {"algorithm": "fedavg", "participation": 0.5, "seed": 1, "rounds": 14, "patience": 0}
    whole = make(federation, **settings)
    whole.execute()
    for stop in range(3, 14):
        folder = tmp_path / str(stop)
        stopped = make(federation, folder, **settings)
        for _ in range(stop):
            stopped.step()
        again = resume(RunDirectory(folder), federation)
        again.execute()
        for ours, expected in zip(again.personal_models(), whole.personal_models(), strict=True):
            for name, tensor in expected.params.items():
                assert torch.equal(ours.params[name], tensor), (stop, name)


def test_the_servers_memory_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a server keeps of the uploads does not change when the clients train on."""
    run = make(algorithm="fedavg")
    plain = run.algorithm.server_step
    different = []

    def remembers(uploads: Tensors, server: ServerRound) -> Mixing:
        if server.memory:
            different.append(not torch.equal(server.memory["last"], uploads["readout.weight"]))
        return replace(plain(uploads, server), memory={"last": uploads["readout.weight"]})

    monkeypatch.setattr(run.algorithm, "server_step", remembers)
    for _ in range(3):
        run.step()
    assert different == [True, True]


def test_whatever_a_checkpoint_counts_is_on_the_disk_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut takes away what was not synced: here, what is renamed into place must not refer to such."""
    synced: dict[Path, int] = {}
    counted: list[str] = []
    fsync, replace_ = os.fsync, os.replace

    def watch_sync(handle: int) -> None:
        fsync(handle)
        path = Path(f"/proc/self/fd/{handle}").readlink()
        synced[path] = os.fstat(handle).st_size if path.is_file() else len(list(path.iterdir()))

    def watch_rename(old: Path, new: Path) -> None:
        assert synced[Path(old)] == Path(old).stat().st_size
        if Path(new).name.startswith("state-"):
            whole = [tmp_path / "metrics.jsonl", tmp_path / "relations.bin", Path(new).with_suffix(".safetensors")]
            whole += [path for path in (tmp_path / "checkpoint").glob("best-*") if path.name[0] != "."]
            for path in whole:
                assert synced[path] == path.stat().st_size, path.name
            assert synced[tmp_path] == len(list(tmp_path.iterdir()))
            counted.append(Path(new).name)
        replace_(old, new)
        synced[Path(new)] = Path(new).stat().st_size
        synced.pop(Path(new).parent, None)

    monkeypatch.setattr(os, "fsync", watch_sync)
    monkeypatch.setattr(os, "replace", watch_rename)
    make(planted_federation(2), tmp_path, rounds=4, checkpoint_share=1.0).execute()
    assert len(counted) == 4
    assert all(folder in synced for folder in (tmp_path, tmp_path / "models", tmp_path / "checkpoint"))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"layers": 10**8}, "layers must be at most 1,000, not 100,000,000"),
        ({"hidden": 10**9}, r"Unable to allocate [\d,]+ GB for the models of 4 clients with hidden = 1,000,000,000"),
    ],
)
def test_models_that_no_machine_can_hold(settings: dict[str, int], sentence: str) -> None:
    config = make_config(("test", {"algorithm": "local", **settings}))
    with pytest.raises(SettingError, match=sentence):
        Run(config, planted_federation(), None)
