"""A made-up graph with communities, for anyone without data and for tests of scale."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgkd.data.graph import Graph, distinct, undirected
from fedgkd.errors import SettingError, quoted, shortened
from fedgkd.memory import available_memory
from fedgkd.parsing import parse_number, parse_whole
from fedgkd.settings import assignments

Indices = NDArray[np.int64]

_ROUNDS = 200


def synthetic_graph(
    num_nodes: int = 2000,
    num_classes: int = 5,
    num_features: int = 64,
    average_degree: float = 8.0,
    homophily: float = 0.8,
    label_skew: float = 0.6,
    seed: int = 0,
    *,
    num_communities: int = 20,
    locality: float = 0.9,
    feature_signal: float = 1.0,
) -> Graph:
    r"""A random graph of communities of equal size, whose edges mostly stay inside them.

    Args:
        num_nodes, num_classes, num_features: Sizes of the graph.
        average_degree: Mean number of neighbours of a node.
        homophily: Share of the edges that join nodes of one class; met to one edge.
        label_skew: Share of a community that has its leading class, the rest being of any class: at 0 all communities
            are alike, at 1 each is of one class (and edges between classes cannot but leave it).
        seed: Decides everything random.
        num_communities: Communities to make.
        locality: Share of the edges that stay inside a community, where it has suitable ends for them.
        feature_signal: Features are :math:`\mathcal N(0, 1)` noise plus a random direction per class of this length.

    Raises:
        SettingError: If a number is out of range, or so many edges cannot be placed.
    """
    _check_at_least(2, num_classes=num_classes)
    _check_at_least(1, num_features=num_features, num_communities=num_communities)
    _check_at_least(max(num_classes, num_communities), num_nodes=num_nodes)
    _check_at_least(0, seed=seed, feature_signal=feature_signal)
    _check_between(0, 1, homophily=homophily, label_skew=label_skew, locality=locality)
    _check_between(0, num_nodes - 1, average_degree=average_degree)
    _check_room(num_nodes, num_classes, num_features, average_degree)
    rng = np.random.default_rng(seed)
    community = rng.permutation(num_nodes) % num_communities
    leading = community % num_classes
    y = np.where(rng.random(num_nodes) < label_skew, leading, rng.integers(num_classes, size=num_nodes))

    sampler = _EdgeSampler(community, y, locality, rng)
    num_edges = round(num_nodes * average_degree / 2)
    within = round(num_edges * homophily)
    _check_pairs(np.bincount(y), within, num_edges - within)
    pairs = np.concatenate([sampler.draw(within, same_class=True), sampler.draw(num_edges - within, same_class=False)])
    edge_index = undirected(np.stack(np.divmod(pairs, num_nodes)), num_nodes)

    directions = rng.standard_normal((num_classes, num_features), dtype=np.float32)
    directions *= feature_signal / np.linalg.norm(directions, axis=1, keepdims=True)
    x = rng.standard_normal((num_nodes, num_features), dtype=np.float32)
    x += directions[y]
    return Graph(x, edge_index, y, num_classes, name="synthetic")


class _EdgeSampler:
    """Draws ends of edges: of the same class or not, from the same community or from anywhere."""

    def __init__(self, community: Indices, y: Indices, locality: float, rng: np.random.Generator) -> None:
        self._num_nodes = len(y)
        self._locality = locality
        self._rng = rng
        self._anywhere = _Pools(np.zeros_like(y), y)
        self._nearby = _Pools(community, y)

    def draw(self, count: int, *, same_class: bool) -> Indices:
        """``count`` different pairs ``u < v`` of one kind, each as the number ``u * num_nodes + v``."""
        pairs = np.empty(0, np.int64)
        for _ in range(_ROUNDS):
            wanted = count - len(pairs)
            if wanted == 0:
                return pairs
            new = np.setdiff1d(self._candidates(wanted + wanted // 8 + 8, same_class), pairs, assume_unique=True)
            pairs = np.concatenate([pairs, self._rng.permutation(new)[:wanted]])
        kind = "inside" if same_class else "between"
        raise _cannot_place(count, kind)

    def _candidates(self, count: int, same_class: bool) -> Indices:
        u = self._rng.integers(self._num_nodes, size=count)
        nearby = (self._rng.random(count) < self._locality) & (self._nearby.sizes(u, same_class) > same_class)
        share = self._rng.random(count)
        v = np.where(nearby, self._nearby.pick(u, share, same_class), self._anywhere.pick(u, share, same_class))
        low, high = np.minimum(u, v), np.maximum(u, v)
        return distinct((low * self._num_nodes + high)[low < high])


class _Pools:
    """Nodes sorted by group and class, so that 'my class' and 'the other classes of my group' are ranges."""

    def __init__(self, group: Indices, y: Indices) -> None:
        cell = group * (y.max() + 1) + y
        self._order = np.argsort(cell, kind="stable")
        self._group_start, self._group_size = _ranges(group)
        self._cell_start, self._cell_size = _ranges(cell)

    def sizes(self, nodes: Indices, same_class: bool) -> Indices:
        own = self._cell_size[nodes]
        return own if same_class else self._group_size[nodes] - own

    def pick(self, nodes: Indices, share: NDArray[np.float64], same_class: bool) -> Indices:
        """For each node the one that lies at ``share`` of its pool; itself where the pool is empty."""
        size = self.sizes(nodes, same_class)
        step = (share * size).astype(np.int64)
        if same_class:
            position = self._cell_start[nodes] + step
        else:
            position = self._group_start[nodes] + step
            position += np.where(position >= self._cell_start[nodes], self._cell_size[nodes], 0)
        return np.where(size > 0, self._order[np.minimum(position, len(self._order) - 1)], nodes)


def _ranges(groups: Indices) -> tuple[Indices, Indices]:
    """For each node where its group starts, with nodes sorted by group, and how many nodes the group has."""
    sizes = np.bincount(groups)
    starts = np.cumsum(sizes) - sizes
    return starts[groups], sizes[groups]


def _check_room(num_nodes: int, num_classes: int, num_features: int, average_degree: float) -> None:
    needed = 8 * num_features * (num_nodes + num_classes) + 64 * num_nodes * (1 + average_degree)
    if needed > available_memory():
        raise SettingError(
            f"a graph of {num_nodes:,} nodes with {num_features:,} features and {average_degree:g} neighbours takes "
            f"about {needed / 1e9:,.0f} GB of memory, but {available_memory() / 1e9:.1f} GB are free; make it smaller"
        )


def _check_pairs(class_sizes: Indices, within: int, between: int) -> None:
    """Raise if there are fewer pairs of nodes than edges wanted."""
    nodes = int(class_sizes.sum())
    inside = sum(size * (size - 1) // 2 for size in class_sizes.tolist())
    for kind, count, pairs in (
        ("inside", within, inside),
        ("between", between, nodes * (nodes - 1) // 2 - inside),
    ):
        if count > pairs:
            raise _cannot_place(count, kind)


def _cannot_place(count: int, kind: str) -> SettingError:
    return SettingError(f"cannot place {count} edges {kind} the classes; lower average_degree or change homophily")


def _check_at_least(least: float, **settings: float) -> None:
    _check_between(least, float("inf"), **settings)


def _check_between(least: float, most: float, **settings: float) -> None:
    for name, value in settings.items():
        if not least <= value <= most:
            limits = f"at least {least}" if most == float("inf") else f"between {least} and {most}"
            raise SettingError(f"{name} must be {limits}, not {value}")


def parse_options(pairs: Iterable[str]) -> dict[str, Any]:
    """``["num_nodes=500", "homophily=0.5"]`` as arguments of :func:`synthetic_graph`, each of the type it takes."""
    known = {name: type(parameter.default) for name, parameter in signature(synthetic_graph).parameters.items()}
    readers = {int: (parse_whole, "whole number"), float: (parse_number, "number")}
    options: dict[str, Any] = {}
    for name, value in assignments("--synthetic", "KEY=VALUE", pairs).items():
        read, kind = readers.get(known.get(name, str), (str, "text"))
        try:
            options[name] = read(value)
        except ValueError as problem:
            pair = shortened(f"{name}={value}")
            raise SettingError(f"--synthetic {pair}: {quoted(value)} is not a {kind}") from problem
    return options
