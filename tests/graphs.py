"""Small graphs that tests share."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from fedgkd.data.federation import Federation
from fedgkd.data.graph import Graph


def random_graph(
    nodes: int = 12, features: int = 6, classes: int = 3, seed: int = 0, sparse: bool = False, name: str = "graph"
) -> Graph:
    """A random undirected graph with every class present and some nodes in every split."""
    draw = np.random.default_rng(seed)
    upper = np.triu(draw.random((nodes, nodes)) < 3.0 / nodes, k=1)
    edges = np.array(np.nonzero(upper | upper.T))
    x = draw.random((nodes, features)).astype(np.float32)
    if sparse:
        x[draw.random(x.shape) < 0.95] = 0.0
    y = draw.permutation(np.arange(nodes) % classes)
    split = np.arange(nodes) % 3
    return Graph(
        sp.csr_array(x) if sparse else x,
        edges,
        y,
        classes,
        train_mask=split == 0,
        val_mask=split == 1,
        test_mask=split == 2,
        name=name,
    )


def planted_federation(
    clients: int = 4, nodes: int = 60, classes: int = 4, features: int = 16, groups: int = 1, seed: int = 0
) -> Federation:
    """Clients with homophilous communities; the classes' features differ, and are permuted between groups of clients.

    Group g sees class c with the features of class c + g, so models of one group mislead the other.
    """
    draw = np.random.default_rng(seed)
    centres = draw.normal(size=(classes, features))
    graphs = []
    for client in range(clients):
        group = client * groups // clients
        y = draw.permutation(np.arange(nodes) % classes)
        same = y[:, None] == y[None, :]
        upper = np.triu(draw.random((nodes, nodes)) < np.where(same, 8.0 / nodes, 1.0 / nodes), k=1)
        x = centres[(y + group) % classes] + draw.normal(scale=1.5, size=(nodes, features))
        split = draw.permutation(np.arange(nodes) % 3)
        graphs.append(
            Graph(
                x.astype(np.float32),
                np.array(np.nonzero(upper | upper.T)),
                y,
                classes,
                split == 0,
                split == 1,
                split == 2,
                name=f"planted-{client}",
            )
        )
    return Federation(tuple(graphs), dataset="planted", setting="own-graphs", seed=seed)
