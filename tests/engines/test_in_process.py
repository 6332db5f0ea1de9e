"""All clients in one process: buckets, order, what moved."""

from __future__ import annotations

import pytest
import torch

from fedgkd.clients import ClientBatch, Tensors
from fedgkd.engines import InProcessEngine
from fedgkd.engines.in_process import bytes_per_client, gather, size_buckets, take
from tests.graphs import random_graph

SIZES = (40, 10, 35, 12)  # two buckets: clients 0 and 2, clients 1 and 3


@pytest.mark.parametrize(
    ("sizes", "buckets"),
    [
        ([5], [[0]]),
        ([10, 10, 10], [[0, 1, 2]]),
        ([10, 20], [[0, 1]]),
        ([10, 21], [[1], [0]]),
        ([40, 10, 35, 12], [[0, 2], [1, 3]]),
        ([1, 2, 4, 8], [[2, 3], [0, 1]]),
    ],
)
def test_nobody_is_padded_to_more_than_twice_its_size(sizes: list[int], buckets: list[list[int]]) -> None:
    assert size_buckets(sizes) == buckets


def test_take_picks_rows_in_the_order_given() -> None:
    tensors = {"w": torch.arange(6.0).view(3, 2)}
    assert take(tensors, [2, 0])["w"].tolist() == [[4, 5], [0, 1]]
    assert take(tensors, [1, 2])["w"].data_ptr() == tensors["w"][1].data_ptr()  # neighbours: no copy
    assert take(tensors, [0, 1])["w"].tolist() == [[0, 1], [2, 3]]


def test_gather_puts_clients_back_in_order() -> None:
    parts = [{"w": torch.tensor([30.0, 10.0])}, {"w": torch.tensor([0.0, 20.0])}]
    assert gather(parts, [3, 1, 0, 2])["w"].tolist() == [0, 10, 20, 30]
    assert gather([], []) == {}
    assert gather(parts[:1], [0, 1]) is parts[0]
    assert gather(parts[:1], [1, 0])["w"].tolist() == [10, 30]


def test_take_undoes_gather() -> None:
    order = [2, 0, 1]
    whole = gather([{"w": torch.tensor([5.0, 6.0, 7.0])}], order)
    assert take(whole, order)["w"].tolist() == [5, 6, 7]


def test_bytes_are_the_sum_over_the_tensors() -> None:
    tensors = {
        "w": torch.zeros(3, 4, 2),  # 8 numbers of 4 bytes
        "counts": torch.zeros(3, 5, dtype=torch.float64),  # 5 of 8
        "loss": torch.zeros(3),
    }
    assert bytes_per_client(tensors) == 32 + 40 + 4
    assert bytes_per_client(tensors) * 3 == sum(t.numel() * t.element_size() for t in tensors.values())
    assert bytes_per_client({}) == 0


def engine() -> InProcessEngine:
    made = InProcessEngine([random_graph(size, seed=size) for size in SIZES], seed=0)
    made.run(give_state, {}, range(4))
    return made


def give_state(clients: ClientBatch, download: Tensors) -> Tensors:
    clients.state = {"w": torch.tensor(clients.ids).double()}
    return {}


def add(clients: ClientBatch, download: Tensors) -> Tensors:
    """A client adds what it was sent to what it has, and returns its number, its size and the sum."""
    clients.seconds["adding"] += 1.0
    clients.state["w"] += download["w"]
    nodes = torch.tensor(clients.graph.num_nodes)
    return {"id": torch.tensor(clients.ids), "nodes": nodes, "sum": clients.state["w"].clone()}


@pytest.mark.parametrize("cohort", [[0, 1, 2, 3], [3, 2, 1, 0], [2], [1, 2], [3, 0]])
def test_rows_belong_to_the_cohort_and_others_stay(cohort: list[int]) -> None:
    machine = engine()
    download = {"w": torch.tensor([100.0 * client for client in cohort], dtype=torch.float64)}
    upload = machine.run(add, download, cohort, round_=7)
    assert upload["id"].tolist() == cohort
    assert upload["nodes"].tolist() == [SIZES[client] for client in cohort]
    assert upload["sum"].tolist() == [101.0 * client for client in cohort]
    state = machine.collect(lambda batch: batch.state)["w"]
    assert state.tolist() == [101.0 * k if k in cohort else k for k in range(4)]


def test_bytes_and_time_are_those_of_the_last_task() -> None:
    machine = engine()
    machine.run(add, {"w": torch.zeros(4, dtype=torch.float64)}, range(4))
    assert (machine.bytes_down, machine.bytes_up) == (8, 24)
    assert machine.seconds == {"adding": 2.0}  # over both buckets
    machine.run(add, {"w": torch.zeros(1, dtype=torch.float64)}, [1])
    assert machine.seconds == {"adding": 1.0}
    machine.run(give_state, {}, range(4))
    assert (machine.bytes_down, machine.bytes_up) == (0, 0)


def test_clients_know_the_round() -> None:
    machine, seen = engine(), []

    def look(clients: ClientBatch, download: Tensors) -> Tensors:
        seen.append(clients.round)
        return {}

    machine.run(look, {}, [0, 1], round_=9)
    assert seen == [9, 9]


def test_restore_is_the_opposite_of_collect() -> None:
    machine, other = engine(), engine()
    machine.run(add, {"w": torch.ones(4, dtype=torch.float64)}, range(4))
    stored = machine.collect(lambda batch: batch.state)
    other.restore(lambda batch: batch.state, stored)
    stored["w"].zero_()  # what was restored is a copy
    assert other.collect(lambda batch: batch.state)["w"].tolist() == [1, 2, 3, 4]


def test_joined_state_is_gathered_without_a_copy_and_nothing_else_leaves() -> None:
    machine = InProcessEngine([random_graph(10, seed=k) for k in range(4)], seed=0, threads=2)

    def give(clients: ClientBatch, download: Tensors) -> Tensors:
        clients.state = {"z": torch.rand(len(clients), 5)}
        return {}

    machine.run(give, {}, range(4))
    machine.join_state()
    assert [len(batch) for batch in machine.batches] == [2, 2]
    whole = machine.run(lambda clients, download: {"z": clients.state["z"]}, {}, range(4))["z"]
    assert whole.data_ptr() == machine.batches[0].state["z"].data_ptr()
    for part in (lambda z: z[:, :1], lambda z: z[:, 1:], lambda z: z.flatten(1)[:, ::2]):
        found = machine.run(lambda clients, download, part=part: {"z": part(clients.state["z"])}, {}, range(4))["z"]
        assert torch.equal(found, part(whole))


def test_all_batches_hold_features_alike() -> None:
    """A client that is dense by itself is held sparse beside sparse ones, however they are batched."""
    graphs = [random_graph(20, features=20, seed=0), *(random_graph(20, 20, sparse=True, seed=k) for k in range(1, 12))]
    for threads in (1, 3, 12):
        machine = InProcessEngine(graphs, seed=0, threads=threads)
        assert {batch.graph.sparse for batch in machine.batches} == {True}
    assert not InProcessEngine(graphs[:1], seed=0).batches[0].graph.sparse
