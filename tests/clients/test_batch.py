"""A batch of clients: their streams, and taking some of them apart and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedgkd.clients import ClientBatch
from tests.graphs import random_graph


def batch() -> ClientBatch:
    clients = ClientBatch([4, 7, 9], [random_graph(6, seed=k, name=f"g{k}") for k in range(3)], seed=5)
    clients.state = {"w": torch.arange(6.0).view(3, 2), "steps": torch.tensor([1.0, 2.0, 3.0])}
    clients.round = 3
    return clients


def test_select_takes_clients_with_a_copy_of_their_state() -> None:
    whole = batch()
    part = whole.select([2, 0])
    assert (part.ids, len(part), part.round, part.seed) == ((9, 4), 2, 3, 5)
    assert [graph.name for graph in part.graph.graphs] == ["g2", "g0"]
    assert part.state["w"].tolist() == [[4, 5], [0, 1]]
    part.state["w"].zero_()
    assert whole.state["w"].tolist() == [[0, 1], [2, 3], [4, 5]]


def test_update_takes_over_those_clients_and_no_others() -> None:
    whole = batch()
    part = whole.select([2, 0])
    part.state = {"w": torch.tensor([[40.0, 50.0], [0.0, 10.0]]), "steps": torch.tensor([30.0, 10.0])}
    whole.update([2, 0], part)
    assert whole.state["w"].tolist() == [[0, 10], [2, 3], [40, 50]]
    assert whole.state["steps"].tolist() == [10, 2, 30]


def test_a_client_draws_the_same_numbers_in_any_batch() -> None:
    whole = batch()
    draws = [source.random(4) for source in whole.streams("dropout")]
    alone = whole.select([1]).streams("dropout")[0].random(4)
    np.testing.assert_array_equal(alone, draws[1])
    assert not np.isin(draws[0], draws[1]).any()


def test_every_round_draws_anew() -> None:
    clients = batch()
    before = clients.streams("dropout")[0].random(4)
    clients.round += 1
    assert not np.isin(clients.streams("dropout")[0].random(4), before).any()


def test_time_adds_up_by_activity(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 5.0, 7.5, 10.0, 11.0])
    monkeypatch.setattr("fedgkd.clients.batch.time.perf_counter", lambda: next(clock))
    clients = batch()
    for activity in ("training", "training", "evaluation"):
        with clients.timed(activity):
            pass
    assert clients.seconds == {"training": 3.5, "evaluation": 1.0}
