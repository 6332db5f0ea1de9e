"""Clients of a federation fit together, or the error says which one does not and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedgkd.data.federation import Federation
from fedgkd.data.graph import Graph
from fedgkd.errors import DataError
from tests.graphs import random_graph


def federation(*graphs: Graph, **fields: Any) -> Federation:
    return Federation(graphs, dataset="mine", setting="own-graphs", **fields)


def test_what_a_federation_holds() -> None:
    made = federation(random_graph(seed=0), random_graph(nodes=9, seed=1))
    assert (made.num_clients, made.num_features, made.num_classes) == (2, 6, 3)
    assert made.names == ("client-0", "client-1")


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (random_graph(features=5), "client-1 has 5 feature columns, but client-0 has 6"),
        (random_graph(classes=4), "client-1 has 4 classes, but client-0 has 3"),
        (
            replace(random_graph(), feature_names=tuple("abxdef")),
            "client-1: feature column 2 is 'x', but 'c' at client-0",
        ),
        (replace(random_graph(), class_names=("p", "r", "q")), "client-1: class 'r' does not stand at the same place"),
        (replace(random_graph(), train_mask=None, val_mask=None, test_mask=None), "client-1: the graph has no train"),
        (
            replace(random_graph(), train_mask=np.zeros(12, np.bool_)),
            "client-1: no training node among its 12 nodes; use fewer clients",
        ),
    ],
)
def test_a_client_that_does_not_fit_is_named(second: Graph, message: str) -> None:
    first = replace(random_graph(), feature_names=tuple("abcdef"), class_names=("p", "q", "r"))
    with pytest.raises(DataError, match=message):
        federation(first, second)


def test_a_federation_has_clients() -> None:
    with pytest.raises(DataError, match="at least one client"):
        federation()


def test_the_hash_tells_federations_apart() -> None:
    graph, other = random_graph(), random_graph(nodes=9, seed=1)
    assert graph.masks is not None
    train, val, test = graph.masks
    ids = tuple(np.arange(size) for size in (12, 9))
    hashes = [
        federation(graph, other).partition_hash,
        federation(other, graph).partition_hash,
        federation(graph, other, node_ids=ids).partition_hash,
        federation(graph.with_masks((val, train, test)), other).partition_hash,
        federation(replace(graph, y=graph.y[::-1]), other).partition_hash,
        federation(replace(graph, edge_index=graph.edge_index[:, :-1]), other).partition_hash,
    ]
    assert len(set(hashes)) == len(hashes)
    assert federation(graph, other).partition_hash == hashes[0]
