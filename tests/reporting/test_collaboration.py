"""Matrices in an order that means something, thinned to what a page can hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedgkd.reporting.collaboration import (
    MOST_CLIENTS,
    MOST_ROUNDS,
    Collaboration,
    collaborations,
    label_order,
    network_places,
)
from fedgkd.reporting.records import Clients
from fedgkd.reporting.report import read_report
from tests.reporting.written import write_run

LABELS = [[9, 1], [1, 9], [8, 2], [2, 8]]


def collaborations_of(folder: Path, budget: int = 100_000) -> list[Collaboration]:
    return collaborations(read_report(folder).comparison, budget)


def clients(labels: list[list[int]]) -> Clients:
    names = tuple(f"client-{k}" for k in range(len(labels)))
    return Clients(names, (1,) * len(labels), np.array(labels), ("0", "1"))


def test_clients_with_similar_labels_are_neighbours() -> None:
    order = label_order(clients(LABELS)).tolist()
    assert {frozenset(order[:2]), frozenset(order[2:])} == {frozenset({0, 2}), frozenset({1, 3})}
    assert label_order(clients(LABELS[:2])).tolist() == [0, 1]
    assert label_order(clients(LABELS[:1])).tolist() == [0]


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["client-0", "client-1"], {"0", "1"}),
        (["north", "a-very-long-hospital-name"], {"north", "a-very-long…"}),
        (["a-long-name-of-north", "a-long-name-of-south"], {"a-long-name-of-north", "a-long-name-of-south"}),
    ],
)
def test_long_names_are_cut_unless_they_would_look_the_same(tmp_path: Path, names: list[str], labels: set[str]) -> None:
    write_run(tmp_path / "a", per_client=[0.8] * 2, relations="RSQ", result={"client_names": names})
    (found,) = collaborations_of(tmp_path)
    assert set(found.labels) == labels


def test_matrices_follow_the_order(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", per_client=[0.8] * 4, relations="RSQ", labels=LABELS)
    (found,) = collaborations_of(tmp_path)
    order = [int(label) for label in found.labels]
    assert order == label_order(clients(LABELS)).tolist()
    with np.load(folder / "relations.npz") as file:
        for name in "RSQ":
            assert np.array_equal(found.matrices[name], file[name][:, order][:, :, order])
    assert found.rounds == (1, 2, 3, 4)
    assert found.rounds[found.chosen] == 3
    assert found.likeness is not None
    assert found.likeness.diagonal().tolist() == pytest.approx([1] * 4)
    assert found.majority == tuple(str(int(np.argmax(LABELS[client]))) for client in order)
    assert found.notes == ()


def test_similar_clients_stand_close_together() -> None:
    shares = np.array([[0, 0.01, 0.6], [0.01, 0, 0.6], [0.6, 0.6, 0]])
    places = network_places(None, shares)
    near = np.linalg.norm(places[0] - places[1])
    assert 2 * near < np.linalg.norm(places[0] - places[2])


def test_without_labels_the_mixture_places_the_clients(tmp_path: Path) -> None:
    write_run(tmp_path / "a", per_client=[0.8] * 4, relations="RSQ")
    (found,) = collaborations_of(tmp_path)
    assert found.labels == ("0", "1", "2", "3")
    assert found.likeness is None
    assert np.isfinite(found.places).all()
    assert found.notes == (
        "The run has no clients.json: clients stand in their own order, placed by the mixture's weights.",
    )


def test_a_mixture_that_says_nothing_is_not_shown(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "local")
    folder = write_run(tmp_path / "b", "fedavg", relations="Q")
    uniform = np.full((4, 3, 3), 1 / 3, np.float32)
    nothing = np.full_like(uniform, np.nan)
    np.savez_compressed(folder / "relations.npz", R=nothing, S=nothing, Q=uniform)
    assert collaborations_of(tmp_path) == []


def test_rounds_are_thinned_evenly_and_the_chosen_one_stays(tmp_path: Path) -> None:
    write_run(tmp_path / "a", relations="RSQ", labels=[[1, 2]] * 3, rounds=100, best_round=50)
    (found,) = collaborations_of(tmp_path)
    assert len(found.rounds) == MOST_ROUNDS
    assert {1, 50, 100} <= set(found.rounds)
    assert found.rounds[found.chosen] == 50
    assert found.notes == ("40 of 100 rounds are kept here, evenly spread; relations.npz has all.",)
    (small,) = collaborations_of(tmp_path, budget=3 * 9 * 5)
    assert len(small.rounds) == 5
    (smallest,) = collaborations_of(tmp_path, budget=1)
    assert smallest.rounds == (50,)


def test_clients_are_thinned(tmp_path: Path) -> None:
    number = MOST_CLIENTS + 20
    write_run(tmp_path / "a", per_client=[0.8] * number, relations="Q", rounds=1, best_round=1)
    (found,) = collaborations_of(tmp_path)
    assert found.matrices["Q"].shape == (1, MOST_CLIENTS, MOST_CLIENTS)
    assert f"{MOST_CLIENTS} of {number} clients are shown, evenly spread over their order." in found.notes


def test_edges_are_the_strongest_ties(tmp_path: Path) -> None:
    write_run(tmp_path / "a", per_client=[0.8] * 6, relations="Q")
    (found,) = collaborations_of(tmp_path)
    chain = np.full((4, 6, 6), np.nan, np.float32)
    chain[0, 0, 1] = chain[0, 1, 0] = 0.5
    chain[0, 2, 3], chain[0, 3, 2] = 0.2, 0.4
    chain[0, 4, 5] = chain[0, 5, 4] = -0.1
    found = replace(found, matrices={"Q": chain})
    assert found.edges("Q", 0) == [(0, 1, 0.5), (2, 3, pytest.approx(0.3))]
    assert found.edges("Q", 1) == []
    assert found.colour_range("Q", 0) == pytest.approx((-0.1, 0.5))
    assert found.colour_range("Q", 1) == (0.0, 1.0)
