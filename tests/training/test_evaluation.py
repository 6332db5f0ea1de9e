"""Accuracy and macro-F1 against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedgkd.clients import ClientBatch, GraphBatch
from fedgkd.data.graph import Graph
from fedgkd.models import Network
from fedgkd.training import evaluate
from fedgkd.training.evaluation import TEST, TRAIN, VAL, confusion, scores


def labelled(y: list[int], split: list[int], num_classes: int = 3) -> Graph:
    """Nodes with these classes; node k is in the split of number ``split[k]``, or in none."""
    nodes, where = len(y), np.array(split)
    return Graph(
        np.ones((nodes, 1)), np.zeros((2, 0), int), np.array(y), num_classes, where == 0, where == 1, where == 2
    )


def score(graphs: list[Graph], predicted: list[list[int]]) -> dict[str, list[list[float]]]:
    found = scores(confusion(GraphBatch(graphs), torch.tensor(predicted)))
    return {name: tensor.tolist() for name, tensor in found.items()}


def test_hand_values() -> None:
    # Training nodes: classes 0 0 1 1 2, of which the model takes 0 1 1 1 0.
    graph = labelled([0, 0, 1, 1, 2], [0] * 5)
    found = score([graph], [[0, 1, 1, 1, 0]])
    assert found["accuracy"][0][TRAIN] == pytest.approx(3 / 5)
    # F1: class 0 has precision 1/2 and recall 1/2; class 1 2/3 and 1; class 2 nothing.
    assert found["macro_f1"][0][TRAIN] == pytest.approx((1 / 2 + 4 / 5 + 0) / 3)


def test_a_class_that_is_neither_there_nor_predicted_does_not_count() -> None:
    found = score([labelled([0, 1], [0, 0], num_classes=5)], [[0, 1]])
    assert found["macro_f1"][0][TRAIN] == 1.0


def test_a_class_that_is_only_predicted_counts_as_zero() -> None:
    found = score([labelled([0, 0], [0, 0])], [[0, 2]])
    assert found["accuracy"][0][TRAIN] == 0.5
    assert found["macro_f1"][0][TRAIN] == pytest.approx((2 / 3 + 0) / 2)


def test_an_empty_split_is_not_a_number() -> None:
    found = score([labelled([0, 1], [0, 2])], [[0, 0]])
    assert found["accuracy"][0][TRAIN] == 1.0
    assert np.isnan([found["accuracy"][0][VAL], found["macro_f1"][0][VAL]]).all()
    assert found["accuracy"][0][TEST] == 0.0


def test_clients_of_unequal_size_are_scored_apart() -> None:
    large, small = labelled([0, 1, 2, 0], [0, 0, 1, 2]), labelled([1, 2], [0, 0])
    found = score([large, small], [[0, 1, 2, 1], [1, 0, 0, 0]])
    assert found["accuracy"][0] == [1.0, 1.0, 0.0]
    assert found["accuracy"][1][TRAIN] == 0.5  # padding is class 0 and predicted as class 0, and does not count


def test_nodes_outside_the_splits_do_not_count() -> None:
    assert score([labelled([0, 1, 1], [0, -1, -1])], [[0, 0, 0]])["accuracy"][0][TRAIN] == 1.0


def test_the_model_is_used_as_it_is() -> None:
    """A readout that always says class 1, by its bias."""
    network = Network("gcn", num_features=1, hidden=2, layers=1, num_classes=3)
    graphs = [labelled([1, 1, 0], [0, 1, 2]), labelled([0, 0, 1], [0, 1, 2])]
    clients = ClientBatch([0, 1], graphs, seed=0)
    params = {name: torch.zeros_like(tensor) for name, tensor in network.initial(0, 2).items()}
    params["readout.bias"][:, :, 1] = 1.0
    assert evaluate(clients, network, params)["accuracy"].tolist() == [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    assert clients.seconds["evaluation"] > 0


def test_unlabelled_nodes_do_not_disturb() -> None:
    graph = replace(labelled([0, 1, 0], [0, 0, -1]), y=np.array([0, 1, -1]))
    assert score([graph], [[0, 1, 2]])["macro_f1"][0][TRAIN] == 1.0
