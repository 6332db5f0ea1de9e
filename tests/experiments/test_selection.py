"""Which model a client is scored by, sets aside and keeps."""

from __future__ import annotations

import torch

from fedgkd.clients import ClientBatch, Tensors
from fedgkd.experiments.selection import keep_model, prefers_received, set_aside, start_setting_aside
from fedgkd.models import Network
from fedgkd.training import evaluate
from fedgkd.training.local import start_clients
from tests.graphs import random_graph

MODEL = Network("gcn", num_features=6, hidden=8, layers=2, num_classes=3)


def report() -> Tensors:
    """Train, validation and test: of three clients only the last one's validation nodes prefer what it received."""
    return {
        "received_accuracy": torch.tensor([[0.9, 0.8, 0.9], [0.9, 0.6, 0.9], [0.5, 0.4, 0.1]], dtype=torch.float64),
        "trained_accuracy": torch.tensor([[0.5, 0.8, 0.1], [0.5, 0.7, 0.1], [0.9, 0.3, 0.9]], dtype=torch.float64),
    }


def test_only_better_on_validation_nodes_is_preferred() -> None:
    assert prefers_received(report()).tolist() == [False, False, True]


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
    assert set_aside(batch, MODEL, report(), "client") == {}
    keep_model(batch)
    assert batch.kept["w"].flatten().tolist() == [1, 2, 30]
    # Now only the first two take part, and the second comes to prefer what it received.
    part = batch.select([0, 1])
    part.state["model.w"] += 4
    part.received = {"w": torch.tensor([[11.0], [21.0]])}
    later = {name: tensor[1:] for name, tensor in report().items()}
    set_aside(part, MODEL, later, "client")
    batch.update([0, 1], part)
    keep_model(batch)
    assert batch.kept["w"].flatten().tolist() == [5, 21, 30]


def test_the_trained_model_needs_nothing_set_aside() -> None:
    batch = clients()
    start_setting_aside(batch, "trained")
    assert set_aside(batch, MODEL, report(), "trained") == {}
    assert batch.state.keys() == {"model.w", "adam.steps"}


def test_before_the_first_round_the_initial_model_is_aside() -> None:
    batch = clients()
    start_setting_aside(batch, "midpoint")
    batch.state["model.w"] += 5
    keep_model(batch)
    assert {name: t.flatten().tolist() for name, t in batch.kept.items()} == {"w": [1, 2, 3]}


def test_half_way_is_the_mean_of_received_and_trained_and_is_scored() -> None:
    batch = ClientBatch([0, 1], [random_graph(12, seed=k) for k in range(2)], seed=0)
    start_clients(batch, MODEL)
    start_setting_aside(batch, "midpoint")
    trained = {name: batch.state[f"model.{name}"].clone() for name in MODEL.parameters}
    batch.received = {name: 3.0 * tensor + 1.0 for name, tensor in trained.items()}
    reported = set_aside(batch, MODEL, {}, "midpoint")
    keep_model(batch)
    half_way = {name: 2.0 * tensor + 0.5 for name, tensor in trained.items()}
    for name, tensor in half_way.items():
        torch.testing.assert_close(batch.kept[name], tensor)
        assert batch.state[f"model.{name}"].equal(trained[name])
    scores = evaluate(batch, MODEL, half_way)
    assert reported.keys() == {"selected_accuracy", "selected_macro_f1"}
    for name, tensor in scores.items():
        torch.testing.assert_close(reported[f"selected_{name}"], tensor)


def test_every_weight_of_a_client_comes_from_one_model() -> None:
    """Also where there are more than one number to a client, and as many as there are clients."""
    batch = clients()
    batch.state["model.w"] = torch.arange(9.0).view(3, 3, 1)
    batch.received = {"w": -torch.arange(9.0).view(3, 3, 1)}
    set_aside(batch, MODEL, report(), "client")
    keep_model(batch)
    assert batch.kept["w"].flatten().tolist() == [0, 1, 2, 3, 4, 5, -6, -7, -8]


def test_what_is_kept_is_overwritten_in_place() -> None:
    """Batches that run side by side keep their models in views of one tensor."""
    batch = clients()
    keep_model(batch)
    kept = batch.kept["w"]
    batch.state["model.w"] += 1
    assert kept.flatten().tolist() == [1, 2, 3]
    keep_model(batch)
    assert batch.kept["w"] is kept
    assert kept.flatten().tolist() == [2, 3, 4]
