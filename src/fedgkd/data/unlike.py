"""Federations made less alike: classes that mean different things to different clients, and few labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedgkd.data.federation import Federation
from fedgkd.data.graph import UNLABELLED, Graph
from fedgkd.errors import SettingError
from fedgkd.randomness import stream


def with_concepts(federation: Federation, concepts: int) -> Federation:
    """Clients in ``concepts`` groups, client i in group i mod ``concepts``; group k calls class c the class c + k.

    The number of a class then means something else in every group, as when departments keep code books of their own.
    The classes lose their names, and the whole graph is gone: its labels would follow one convention only.

    Raises:
        SettingError: If there are more conventions than classes or clients.
    """
    if concepts == 1:
        return federation
    most = min(federation.num_classes, federation.num_clients)
    if concepts > most:
        raise SettingError(
            f"concepts={concepts}: {federation.dataset} has {federation.num_classes} classes and "
            f"{federation.num_clients} clients, so at most {most} conventions can differ"
        )
    shifts = [client % concepts for client in range(federation.num_clients)]
    return replace(
        federation,
        graphs=tuple(_shifted(graph, shift) for graph, shift in zip(federation.graphs, shifts, strict=True)),
        groups=tuple(f"convention {shift}" for shift in shifts),
        whole=None,
    )


def with_few_labels(federation: Federation, train_per_client: int, seed: int) -> Federation:
    """Every client keeps at most so many of its training nodes, drawn by the seed; the others are in no split."""
    if not train_per_client:
        return federation
    graphs = []
    for client, graph in enumerate(federation.graphs):
        assert graph.masks is not None  # a federation's graphs have them
        train, val, test = graph.masks
        shuffled = stream(seed, "labels", client).permutation(np.flatnonzero(train))
        kept = np.zeros_like(train)
        kept[shuffled[:train_per_client]] = True
        graphs.append(graph.with_masks((kept, val, test)))
    return replace(federation, graphs=tuple(graphs))


def _shifted(graph: Graph, shift: int) -> Graph:
    y = np.where(graph.y == UNLABELLED, graph.y, (graph.y + shift) % graph.num_classes)
    return replace(graph, y=y, class_names=None)
