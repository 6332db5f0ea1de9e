"""A federation: one graph with splits per client, all with the same features and classes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedgkd.data.graph import Graph
from fedgkd.errors import DataError, quoted

DATA_SETTINGS = (
    "dataset",
    "graphs",
    "label",
    "synthetic",
    "train_ratio",
    "val_ratio",
    "test_ratio",
    "concepts",
    "train_per_client",
)
"""Settings of a run that choose its data, beside the number of clients, the partition and the seed."""


@dataclass(frozen=True, eq=False)
class Federation:
    """The private graphs of all clients, as a simulation sees them.

    Args:
        graphs: One graph per client, each with masks.
        dataset: What the graphs come from, e.g. ``cora``.
        setting: How the graph was divided, or ``own-graphs``.
        seed: The seed that decided splits and partition; None for graphs that came as they are.
        node_ids: For a partitioned graph, the node numbers in the whole graph, per client.
        names: Client names, for messages and files.
        groups: Where it is known which clients have the same task: each one's group.
        whole: For a partitioned graph, that graph with its splits and all its edges: what only a simulation has.

    Raises:
        DataError: If the clients do not share features and classes, or one has no training node.
    """

    graphs: tuple[Graph, ...]
    dataset: str
    setting: str
    seed: int | None = None
    node_ids: tuple[NDArray[np.int64], ...] | None = None
    names: tuple[str, ...] = ()
    groups: tuple[str, ...] | None = None
    whole: Graph | None = None

    def __post_init__(self) -> None:
        if not self.graphs:
            raise DataError("a federation needs at least one client")
        if not self.names:
            object.__setattr__(self, "names", tuple(f"client-{i}" for i in range(len(self.graphs))))
        check_clients_agree(self.graphs, self.names)
        for name, graph in zip(self.names, self.graphs, strict=True):
            if graph.masks is None:
                raise DataError(f"{name}: the graph has no train/val/test split")
            if not graph.masks[0].any():
                raise DataError(
                    f"{name}: no training node among its {graph.num_nodes} nodes; "
                    "use fewer clients or a larger train_ratio, or mark some in its own train_mask"
                )

    @property
    def num_clients(self) -> int:
        return len(self.graphs)

    @property
    def num_features(self) -> int:
        return self.graphs[0].num_features

    @property
    def num_classes(self) -> int:
        return self.graphs[0].num_classes

    @property
    def partition_hash(self) -> str:
        """SHA-256 over every client's nodes, edges, labels and splits: equal hashes, equal federation."""
        digest = hashlib.sha256()
        for i, graph in enumerate(self.graphs):
            parts = [graph.edge_index, graph.y, *(graph.masks or ())]
            if self.node_ids is not None:
                parts.insert(0, self.node_ids[i])
            for part in parts:
                digest.update(str(part.shape).encode())
                digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()


def check_clients_agree(graphs: Sequence[Graph], names: Sequence[str]) -> None:
    """All clients of a federation share feature columns and classes; the error names client and column."""
    first, first_name = graphs[0], names[0]
    for graph, name in zip(graphs[1:], names[1:], strict=True):
        if graph.num_features != first.num_features:
            raise DataError(
                f"{name} has {graph.num_features} feature columns, "
                f"but {first_name} has {first.num_features}; all clients need the same columns"
            )
        if graph.num_classes != first.num_classes:
            raise DataError(f"{name} has {graph.num_classes} classes, but {first_name} has {first.num_classes}")
    for name, column, theirs, ours, first_name in _differing(graphs, names, "feature_names"):
        raise DataError(
            f"{name}: feature column {column} is {quoted(theirs)}, but {quoted(ours)} at {first_name}; "
            "all clients need the same columns in one order"
        )
    for name, _, theirs, _, first_name in _differing(graphs, names, "class_names"):
        raise DataError(
            f"{name}: class {quoted(theirs)} does not stand at the same place at {first_name}; "
            "all clients need the same classes in one order"
        )


def _differing(graphs: Sequence[Graph], names: Sequence[str], field: str) -> Iterator[tuple[str, int, str, str, str]]:
    """Where a client's names differ from those of the first client that has any."""
    named = [(name, getattr(graph, field)) for name, graph in zip(names, graphs, strict=True) if getattr(graph, field)]
    for name, theirs in named[1:]:
        first_name, ours = named[0]
        for place, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            if one != other:
                yield name, place, one, other, first_name
