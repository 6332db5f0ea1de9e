"""Scores of all clients, the model that each prefers, and the best round."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
import torch

from fedgkd.clients import ClientBatch, Tensors
from fedgkd.experiments.plain import plain
from fedgkd.experiments.records import figures, scores_record
from fedgkd.experiments.scores import Best, Scoreboard
from fedgkd.experiments.selection import keep_model, prefers_received, set_aside, start_setting_aside
from fedgkd.models import Network
from fedgkd.training.evaluation import TEST, TRAIN, VAL
from tests.graphs import random_graph

NAN = float("nan")
MODEL = Network("gcn", num_features=4, hidden=8, layers=2, num_classes=3)


def uploads() -> Tensors:
    """Three clients: the second has no test nodes, the third prefers the model that it received."""
    return {
        "trained_accuracy": torch.tensor([[0.9, 0.8, 0.6], [0.9, 0.7, NAN], [0.9, 0.3, 0.2]], dtype=torch.float64),
        "received_accuracy": torch.tensor([[0.5, 0.8, 0.1], [0.5, 0.6, NAN], [0.5, 0.4, 1.0]], dtype=torch.float64),
        "trained_macro_f1": torch.tensor([[0.5, 0.5, 0.5], [0.5, 0.5, NAN], [0.5, 0.5, 0.1]], dtype=torch.float64),
        "received_macro_f1": torch.tensor([[0.4, 0.4, 0.4], [0.4, 0.4, NAN], [0.4, 0.4, 0.8]], dtype=torch.float64),
        "loss": torch.tensor([1.0, NAN, 2.0]),
        "nodes": torch.tensor([[10, 10, 10], [10, 10, 0], [10, 10, 30]], dtype=torch.float64),
    }


def board(select: str = "trained") -> Scoreboard:
    scores = Scoreboard.empty(3)
    scores.update(uploads(), [0, 1, 2], select)
    return scores


def test_means_leave_out_clients_without_nodes() -> None:
    scores = board()
    assert scores.mean("trained", TEST) == pytest.approx((0.6 + 0.2) / 2)
    assert scores.weighted_mean("trained", TEST) == pytest.approx((10 * 0.6 + 30 * 0.2) / 40)
    assert scores.mean_macro_f1("trained", TEST) == pytest.approx((0.5 + 0.1) / 2)
    assert scores.mean("trained", VAL) == pytest.approx((0.8 + 0.7 + 0.3) / 3)
    assert [scores.clients_without(split) for split in (TRAIN, VAL, TEST)] == [0, 0, 1]
    assert scores.mean_loss == 1.5


def test_a_client_is_scored_by_the_model_that_its_validation_nodes_prefer() -> None:
    """Equal is not better: the first client stays with the trained model."""
    assert prefers_received(uploads()).tolist() == [False, False, True]
    assert board("trained").accuracy["selected"][:, TEST].tolist() == pytest.approx([0.6, NAN, 0.2], nan_ok=True)
    chosen = board("client")
    assert chosen.accuracy["selected"][:, TEST].tolist() == pytest.approx([0.6, NAN, 1.0], nan_ok=True)
    assert chosen.macro_f1["selected"][:, TEST].tolist() == pytest.approx([0.5, NAN, 0.8], nan_ok=True)
    assert chosen.accuracy["trained"][2, TEST] == 0.2


def test_a_model_of_its_own_has_scores_of_its_own() -> None:
    scores, report = Scoreboard.empty(3), uploads()
    other = {f"selected_{kind}": report[f"trained_{kind}"] / 2 for kind in ("accuracy", "macro_f1")}
    scores.update(report | other, [0, 1, 2], "midpoint")
    assert scores.accuracy["selected"][:, TEST].tolist() == pytest.approx([0.3, NAN, 0.1], nan_ok=True)
    assert scores.macro_f1["selected"][:, TEST].tolist() == pytest.approx([0.25, NAN, 0.05], nan_ok=True)
    assert scores.accuracy["trained"][:, TEST].tolist() == pytest.approx([0.6, NAN, 0.2], nan_ok=True)


def test_absent_clients_keep_their_scores() -> None:
    scores = Scoreboard.empty(3)
    assert np.isnan(scores.mean("trained", TEST))
    assert not scores.everybody_known
    scores.update({name: tensor[:2] for name, tensor in uploads().items()}, [2, 0], "trained")
    assert not scores.everybody_known
    assert scores.accuracy["trained"][:, VAL].tolist() == pytest.approx([0.7, NAN, 0.8], nan_ok=True)
    scores.update({name: tensor[2:] for name, tensor in uploads().items()}, [1], "trained")
    assert scores.everybody_known
    assert scores.accuracy["trained"][:, VAL].tolist() == [0.7, 0.3, 0.8]


def test_scores_survive_a_checkpoint() -> None:
    stored = plain(asdict(board("client")))
    assert stored["loss"] == [1.0, None, 2.0]
    again = Scoreboard.from_plain(stored)
    np.testing.assert_equal(asdict(again), asdict(board("client")))


def test_figures_and_record_agree() -> None:
    scores = board()
    found, record = figures(scores, "trained"), plain(scores_record(scores))
    assert found["test_accuracy"] == record["trained"]["accuracy"]["test"]
    assert found["test_accuracy_weighted"] == record["trained"]["accuracy_weighted"]["test"]
    assert record["trained"]["per_client"]["test"] == [0.6, None, 0.2]
    assert record["received"]["macro_f1_per_client"]["test"] == [0.4, None, 0.8]
    assert record["loss_per_client"] == [1.0, None, 2.0]


def test_the_best_round_is_the_first_of_equals() -> None:
    best = Best()
    assert not best.offer(1, NAN, {})
    assert best.offer(2, 0.0, {"a": 1})
    assert not best.offer(3, 0.0, {})
    assert best.offer(4, 0.5, {"a": 2})
    assert not best.offer(5, 0.4, {})
    assert (best.round, best.val, best.figures) == (4, 0.5, {"a": 2})


def clients() -> ClientBatch:
    batch = ClientBatch([0, 1, 2], [random_graph(6, seed=k) for k in range(3)], seed=0)
    batch.state = {"model.w": torch.tensor([[1.0], [2.0], [3.0]]), "adam.steps": torch.zeros(3)}
    return batch


def test_a_client_keeps_its_model_as_it_is_now() -> None:
    batch = clients()
    keep_model(batch)
    batch.state["model.w"] += 1
    assert {name: t.flatten().tolist() for name, t in batch.kept.items()} == {"w": [1, 2, 3]}


def test_a_client_keeps_the_model_that_it_prefers_also_while_it_is_absent() -> None:
    batch = clients()
    start_setting_aside(batch, "client")
    batch.received = {"w": torch.tensor([[10.0], [20.0], [30.0]])}
    assert set_aside(batch, MODEL, uploads(), "client") == {}
    keep_model(batch)
    assert batch.kept["w"].flatten().tolist() == [1, 2, 30]
    # Now only the first two take part, and the second comes to prefer what it received.
    part = batch.select([0, 1])
    part.state["model.w"] += 4
    part.received = {"w": torch.tensor([[11.0], [21.0]])}
    report = {name: tensor[1:] for name, tensor in uploads().items()}
    set_aside(part, MODEL, report, "client")
    batch.update([0, 1], part)
    keep_model(batch)
    assert batch.kept["w"].flatten().tolist() == [5, 21, 30]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (NAN, None),
        (float("-inf"), None),
        (np.array([1.0, NAN]), [1.0, None]),
        ({"a": (1, {"b": NAN})}, {"a": [1, {"b": None}]}),
        (np.array([[1, 2]]), [[1, 2]]),
        ("text", "text"),
        (None, None),
        (True, True),
    ],
)
def test_plain(value: object, expected: object) -> None:
    assert plain(value) == expected
