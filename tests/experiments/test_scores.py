"""Scores of all clients, the model that each prefers, and the best round."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
import torch

from fedgkd.clients import Tensors
from fedgkd.experiments.plain import plain
from fedgkd.experiments.records import figures, scores_record
from fedgkd.experiments.scores import Best, Scoreboard
from fedgkd.training.evaluation import TEST, TRAIN, VAL

NAN = float("nan")


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


def test_only_some_of_the_clients() -> None:
    whole = board("client")
    some = whole.only([2, 0])
    assert some.accuracy["trained"][:, TEST].tolist() == pytest.approx([0.6, NAN, 0.2], nan_ok=True)
    for kind, known in (("accuracy", some.accuracy), ("macro_f1", some.macro_f1)):
        assert known.keys() == {"trained", "received", "selected"}
        for model, values in known.items():
            assert np.isnan(values[1]).all()
            np.testing.assert_equal(values[[0, 2]], getattr(whole, kind)[model][[0, 2]])
    np.testing.assert_equal(some.loss, [1.0, NAN, 2.0])
    np.testing.assert_equal(some.nodes, [[10, 10, 10], [NAN] * 3, [10, 10, 30]])
    assert (some.clients_never_present, whole.clients_never_present) == (1, 0)
    assert whole.only([]).mean("trained", VAL) != whole.mean("trained", VAL) == pytest.approx(0.6)


def test_a_best_round_is_stale_after_so_many_without_a_better_one() -> None:
    best = Best()
    assert not best.is_stale(100, patience=3), "no round is the best yet"
    best.offer(1, 0.5, {})
    assert [best.is_stale(round_, patience=3) for round_ in (3, 4, 5)] == [False, True, True]
    assert not best.is_stale(100, patience=0)


def test_unknown_and_empty() -> None:
    scores = Scoreboard.empty(2)
    assert scores.clients_never_present == 2
    assert scores.accuracy.keys() == scores.macro_f1.keys() == {"trained", "received", "selected"}
    assert scores.accuracy["received"].shape == scores.nodes.shape == (2, 3)
    for unknown in (scores.mean("trained", TEST), scores.weighted_mean("trained", TEST), scores.mean_loss):
        assert np.isnan(unknown)


def test_a_client_counts_by_its_nodes_unless_it_has_none() -> None:
    scores = board()
    scores.accuracy["trained"][1, TEST] = 0.9  # it has no test node
    assert scores.weighted_mean("trained", TEST) == pytest.approx((10 * 0.6 + 30 * 0.2) / 40)
    scores.accuracy["trained"][1, TEST], scores.nodes[1, TEST] = NAN, 5
    assert scores.weighted_mean("trained", TEST) == pytest.approx((10 * 0.6 + 30 * 0.2) / 40)
    scores.nodes[:, TEST] = 0
    assert np.isnan(scores.weighted_mean("trained", TEST))
    scores.nodes[:, TEST] = 10, 1, 30
    scores.accuracy["trained"][1, TEST] = 1.0
    assert scores.weighted_mean("trained", TEST) == pytest.approx((10 * 0.6 + 1 * 1.0 + 30 * 0.2) / 41)


def test_the_best_round_is_the_first_of_equals() -> None:
    best = Best()
    assert not best.offer(1, NAN, {})
    assert best.offer(2, 0.0, {"a": 1})
    assert not best.offer(3, 0.0, {})
    assert best.offer(4, 0.5, {"a": 2})
    assert not best.offer(5, 0.4, {})
    assert (best.round, best.val, best.figures) == (4, 0.5, {"a": 2})


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
