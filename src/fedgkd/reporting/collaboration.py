"""Who learns from whom: the matrices R, S and Q of a run, its clients ordered and placed by what they really have.

Clients with similar labels stand next to each other in the heat maps and close together in the network, so a relation
that sees the truth shows blocks along the diagonal and short, strong edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedgkd.data.statistics import jensen_shannon
from fedgkd.reporting.comparison import Cell, Comparison, Method
from fedgkd.reporting.methods import OKABE_ITO
from fedgkd.reporting.records import Clients, FinishedRun

Array = NDArray[np.float64]
Edge = tuple[int, int, float]

MOST_ROUNDS = 40
MOST_CLIENTS = 100
_STRONGEST = 3
_LONG_NAME = 12
_LARGEST_SPRINGS = 60

MEANINGS = {
    "R": "relation of the clients' tasks",
    "S": "kernel over the whole network",
    "Q": "weights of the mixture: row i is what client i gets",
    "labels": "true likeness of the clients' labels (1 − divergence / ln 2)",
}


@dataclass(frozen=True)
class ClientGroup:
    """Clients that are drawn alike: those with the same most frequent class."""

    label: str
    colour: str
    members: tuple[int, ...]


@dataclass(frozen=True)
class Collaboration:
    """A run's matrices, thinned to what a page can hold.

    Attributes:
        method, cell, seed: Which run it is.
        names: The clients shown, in the order of rows and columns.
        rounds: The rounds shown; ``chosen`` is the place among them of the round that validation chose.
        matrices: R, S and Q, as far as the algorithm has them, each ``(rounds, clients, clients)``.
        likeness: True likeness of the clients' labels, if it is known.
        places: Where each client stands in the drawing of the network, ``(clients, 2)``.
        sizes: Number of nodes of each client, if it is known.
        majority: The most frequent class of each client, if it is known.
        notes: What was left out.
    """

    cell: Cell
    method: Method
    seed: int
    names: tuple[str, ...]
    rounds: tuple[int, ...]
    chosen: int
    matrices: dict[str, NDArray[np.float32]]
    likeness: Array | None
    places: Array
    sizes: tuple[int, ...]
    majority: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.cell.key}-{self.method.key}"

    @property
    def title(self) -> str:
        return f"{self.cell.title}: {self.method.title}, seed {self.seed}"

    @property
    def labels(self) -> tuple[str, ...]:
        """Short names, for the axes; long ones are cut, unless two would look the same."""
        names = tuple(name.removeprefix("client-") for name in self.names)
        short = tuple(name if len(name) <= _LONG_NAME else f"{name[: _LONG_NAME - 1]}…" for name in names)
        return short if len(set(short)) == len(names) else names

    def groups(self) -> list[ClientGroup]:
        """Clients by their most frequent class; all in one where classes are unknown or more than there are colours."""
        classes = sorted(set(self.majority))
        if not 0 < len(classes) <= len(OKABE_ITO):
            return [ClientGroup("", OKABE_ITO[0], tuple(range(len(self.names))))]
        return [
            ClientGroup(name, colour, tuple(client for client, theirs in enumerate(self.majority) if theirs == name))
            for name, colour in zip(classes, OKABE_ITO, strict=False)
        ]

    def areas(self) -> Array:
        """How much room each client's dot takes, 1 at most: by its nodes, if they are known."""
        sizes = np.array(self.sizes or [1] * len(self.names), dtype=np.float64)
        return np.asarray(0.2 + 0.8 * sizes / sizes.max())

    def colour_range(self, name: str, place: int) -> tuple[float, float]:
        """Smallest and largest value of a round beside the diagonal, which would drown all others."""
        values = self.matrices[name][place][~np.eye(len(self.names), dtype=bool)]
        values = values[np.isfinite(values)]
        return (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)

    def edges(self, name: str, place: int) -> list[Edge]:
        """The strongest ties of every client in a round: pairs, with the mean weight of both directions."""
        matrix = self.matrices[name][place].astype(np.float64)
        weights = np.nan_to_num((matrix + matrix.T) / 2, nan=-np.inf)
        np.fill_diagonal(weights, -np.inf)
        nearest = np.argsort(-weights, axis=1, kind="stable")[:, :_STRONGEST]
        pairs = {(min(i, j), max(i, j)) for i, row in enumerate(nearest.tolist()) for j in row if weights[i, j] > 0}
        return [(i, j, float(weights[i, j])) for i, j in sorted(pairs)]


def collaborations(comparison: Comparison, budget: int) -> list[Collaboration]:
    """One for every method in every cell whose mixture says something: its first seed.

    Args:
        comparison: All cells.
        budget: How many numbers all matrices together may have; beyond it, rounds are left out.
    """
    found = [
        (cell, entry)
        for cell in comparison.cells
        for entry in cell.entries
        if _says_something(entry.runs[0].relations())
    ]
    share = budget // max(1, len(found))
    return [_collaboration(cell, entry.method, entry.runs[0], share) for cell, entry in found]


def _says_something(matrices: dict[str, NDArray[np.float32]]) -> bool:
    """Not so if there is no relation and everybody gets the same, or nothing, from everybody else."""
    if "R" in matrices:
        return True
    if "Q" not in matrices:
        return False
    apart = matrices["Q"][:, ~np.eye(matrices["Q"].shape[1], dtype=bool)]
    apart = apart[np.isfinite(apart)]
    return bool(apart.size and np.ptp(apart) > 1e-6)


def _collaboration(cell: Cell, method: Method, run: FinishedRun, budget: int) -> Collaboration:
    matrices, clients = run.relations(), run.clients()
    order = label_order(clients) if clients else np.arange(cell.clients)
    shown = order[_spread(len(order), MOST_CLIENTS)]
    total = run.result["rounds"]
    fitting = max(1, budget // (len(matrices) * len(shown) ** 2))
    rounds = _thinned_rounds(total, run.result["best_round"], min(MOST_ROUNDS, fitting))
    rows = np.ix_(np.array(rounds) - 1, shown, shown)
    kept = {name: matrix[rows] for name, matrix in matrices.items()}
    divergence = jensen_shannon(clients.labels)[np.ix_(shown, shown)] if clients else None
    last_mixture = kept["Q"][-1] if "Q" in kept else next(iter(kept.values()))[-1]
    return Collaboration(
        cell,
        method,
        int(run.result["seed"]),
        tuple(run.result["client_names"][client] for client in shown),
        tuple(rounds),
        rounds.index(run.result["best_round"]),
        kept,
        None if divergence is None else 1 - divergence / np.log(2),
        network_places(last_mixture if divergence is None else None, divergence),
        tuple(clients.nodes[client] for client in shown) if clients else (),
        tuple(clients.classes[clients.labels[client].argmax()] for client in shown) if clients else (),
        tuple(_notes(total, len(rounds), cell.clients, len(shown), clients is not None)),
    )


def label_order(clients: Clients) -> NDArray[np.int64]:
    """Clients in the order of a tree that joins those with the most similar labels first."""
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    if len(clients.names) < 3:
        return np.arange(len(clients.names))
    distances = squareform(jensen_shannon(clients.labels), checks=False)
    return np.asarray(leaves_list(linkage(distances, "average", optimal_ordering=True)), dtype=np.int64)


def network_places(weights: NDArray[np.float32] | None, divergence: Array | None) -> Array:
    """Where clients stand: as far apart as their labels diverge, or else pulled together by the mixture's weights."""
    import networkx as nx

    if divergence is not None and len(divergence) <= _LARGEST_SPRINGS:
        graph = nx.complete_graph(len(divergence))
        # Clients with the same labels would stand on one spot.
        apart = np.sqrt(divergence) + 0.1
        distances = {i: dict(enumerate(row)) for i, row in enumerate(apart.tolist())}
        places = nx.kamada_kawai_layout(graph, dist=distances)
    else:
        ties = np.exp(-4 * divergence) if divergence is not None else np.nan_to_num(np.asarray(weights))
        graph = nx.from_numpy_array(np.where(np.eye(len(ties), dtype=bool), 0, (ties + ties.T) / 2))
        places = nx.spring_layout(graph, seed=0)
    return np.array([places[node] for node in range(len(places))], dtype=np.float64).reshape(-1, 2)


def _thinned_rounds(total: int, best: int, most: int) -> list[int]:
    """Evenly spread, always with the best one; with the first and the last where there is room."""
    if most < 3:
        return [best]
    even = np.unique(np.round(np.linspace(1, total, min(most, total))).astype(int)).tolist()
    if best not in even:
        inner = even[1:-1]
        even[1 + int(np.argmin(np.abs(np.array(inner) - best)))] = best
    return sorted(even)


def _spread(number: int, most: int) -> NDArray[np.int64]:
    return np.unique(np.round(np.linspace(0, number - 1, min(most, number))).astype(np.int64))


def _notes(rounds: int, kept_rounds: int, clients: int, kept_clients: int, known: bool) -> Sequence[str]:
    notes = []
    if kept_rounds < rounds:
        notes.append(f"{kept_rounds} of {rounds} rounds are kept here, evenly spread; relations.npz has all.")
    if kept_clients < clients:
        notes.append(f"{kept_clients} of {clients} clients are shown, evenly spread over their order.")
    if not known:
        notes.append("The run has no clients.json: clients stand in their own order, placed by the mixture's weights.")
    return notes
