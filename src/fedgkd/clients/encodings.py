"""Where a node stands in its graph, as numbers that mean the same at every client.

Both encodings are those of FedStar (Tan et al., AAAI 2023), for the undirected graph without self-loops.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fedgkd.data.graph import Graph

# Entries of the dense block of walks that is held at a time: 64 MB.
_BLOCK_ENTRIES = 1 << 24


def structure_encoding(graph: Graph, walk_steps: int, max_degree: int) -> NDArray[np.float32]:
    """Return probabilities beside the one-hot degree: ``(nodes, walk_steps + max_degree)``.

    It is computed once for a graph: the clients of a round are gathered anew, their graphs are not.
    """
    known = _ENCODINGS.setdefault(graph, {})
    if (walk_steps, max_degree) not in known:
        adjacency = graph.simple_adjacency()
        parts = (return_probabilities(adjacency, walk_steps), degree_one_hot(adjacency, max_degree))
        known[walk_steps, max_degree] = np.concatenate(parts, axis=1)
    return known[walk_steps, max_degree]


_ENCODINGS: WeakKeyDictionary[Graph, dict[tuple[int, int], NDArray[np.float32]]] = WeakKeyDictionary()


def return_probabilities(adjacency: sp.csr_array, steps: int, block: int | None = None) -> NDArray[np.float32]:
    r"""How likely a random walk is back at its start after 1, …, ``steps`` steps: ``(nodes, steps)``.

    With the symmetric :math:`S = D^{-1/2} A D^{-1/2}`, the diagonal of the walk's k-th power is that of :math:`S^k`,
    and :math:`(S^{a+b})_{vv} = \langle S^a e_v, S^b e_v \rangle`: half the powers do, for some start nodes at a time,
    and no power of the adjacency is ever formed. An isolated node never returns: zeros.

    Args:
        adjacency: Symmetric, 0/1, without self-loops.
        block: Number of start nodes at a time; by default as many as 64 MB hold.
    """
    nodes = adjacency.shape[0]
    degree = adjacency.sum(axis=1)
    scale = np.zeros(nodes, np.float32)
    np.power(degree, -0.5, out=scale, where=degree > 0)
    walk = sp.csr_array(sp.diags_array(scale) @ adjacency @ sp.diags_array(scale), dtype=np.float32)
    width = block or max(1, _BLOCK_ENTRIES // nodes)
    result = np.empty((nodes, steps), np.float32)
    for first in range(0, nodes, width):
        starts = np.arange(first, min(first + width, nodes))
        before = np.zeros((nodes, len(starts)), np.float32)
        before[starts, np.arange(len(starts))] = 1.0
        for step in range(1, steps + 1):
            # Odd numbers of steps meet the next power, even ones meet the same.
            after = walk @ before if step % 2 else before
            result[starts, step - 1] = np.einsum("vs,vs->s", before, after)
            before = after
    return result


def degree_one_hot(adjacency: sp.csr_array, largest: int) -> NDArray[np.float32]:
    """Column d − 1 is one for a node of degree d; the last one takes all larger degrees. Isolated nodes have none."""
    degree = np.diff(adjacency.indptr)
    result = np.zeros((len(degree), largest), np.float32)
    connected = np.flatnonzero(degree)
    result[connected, np.minimum(degree[connected], largest) - 1] = 1.0
    return result
