"""An order of nodes and classes that follows from the graph's content alone.

Publishers number the same nodes and classes differently. Whatever the numbering a file came with, the order found here
gives one and the same graph, and so one and the same seeded result.

Every node gets a 64-bit colour: first a hash of its features, then, again and again, a hash of its own colour, the
colours around it and the colours of its class (Weisfeiler–Lehman refinement), until no further nodes can be told apart.
Nodes that still share a colour are told apart by marking one of them and refining again. All sums are of unsigned
64-bit numbers that wrap around, hence independent of order, machine and number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fedgkd.data.graph import Features, Graph

Colours = NDArray[np.uint64]
Indices = NDArray[np.int64]

_ROWS_AT_ONCE = 8192


def canonical_order(graph: Graph) -> tuple[Indices, Indices]:
    """The nodes and the classes of ``graph`` in the order that its content decides; edges must be undirected.

    Classes come largest first. Only where graphs are so regular that one marked node does not tell their nodes apart
    (strongly regular graphs without features) may the order still depend on the numbering.
    """
    structure = _Structure.of(graph)
    colours = structure.refine(_row_hashes(graph.x))
    colours = structure.refine(structure.separate_twins(colours))
    while (tied := _first_tie(colours)).size:
        marked = (structure.refine(_mark(colours, node)) for node in tied)
        colours = min(marked, key=lambda found: int(_mix(found).sum()))
    sizes = np.diff(structure.class_starts)[:-1]
    class_order = np.lexsort([structure.class_colours(colours)[:-1], -sizes])
    return np.argsort(colours), class_order


@dataclass(frozen=True)
class _Structure:
    """Who is next to whom, and who is in which class (unlabelled nodes form one more class, the last)."""

    neighbours: Indices
    neighbour_starts: Indices
    labels: Indices
    members: Indices
    class_starts: Indices

    @classmethod
    def of(cls, graph: Graph) -> _Structure:
        source, target = graph.edge_index
        labels = np.where(graph.y < 0, graph.num_classes, graph.y)
        return cls(
            neighbours=target[np.argsort(source, kind="stable")],
            neighbour_starts=_starts(source, graph.num_nodes),
            labels=labels,
            members=np.argsort(labels, kind="stable"),
            class_starts=_starts(labels, graph.num_classes + 1),
        )

    def class_colours(self, colours: Colours) -> Colours:
        sums = _segment_sums(_mix(colours)[self.members], self.class_starts)
        sums[-1] ^= np.uint64(1)  # being unlabelled is not being of some class
        return _mix(sums)

    def refine(self, colours: Colours) -> Colours:
        """Tell apart what neighbours and classes tell apart."""
        distinct, before = len(np.unique(colours)), 0
        while distinct > before:
            own = _mix(colours)
            around = _segment_sums(own[self.neighbours], self.neighbour_starts)
            colours = _mix(_mix(own * np.uint64(3) + around) + self.class_colours(colours)[self.labels])
            distinct, before = len(np.unique(colours)), distinct
        return colours

    def separate_twins(self, colours: Colours) -> Colours:
        """Number the nodes of one colour, class and neighbourhood; any order will do, for they are interchangeable."""
        identity = _mix(np.arange(len(colours), dtype=np.uint64))
        around = _segment_sums(identity[self.neighbours], self.neighbour_starts)
        for neighbourhood in (around, around + identity):
            twins = _mix(_mix(colours + self.labels.astype(np.uint64)) + neighbourhood)
            colours = _mix(colours + _rank_among_equals(twins))
        return colours


def _row_hashes(x: Features) -> Colours:
    """A hash of each row's nonzero values and their columns, the same for dense and sparse features."""
    column_hashes = _mix(np.arange(x.shape[1], dtype=np.uint64))
    blocks = []
    for start in range(0, x.shape[0], _ROWS_AT_ONCE):
        rows = sp.csr_array(x[start : start + _ROWS_AT_ONCE], copy=True)
        rows.eliminate_zeros()
        bits = rows.data.astype(np.float32).view(np.uint32).astype(np.uint64)
        blocks.append(_segment_sums(_mix(column_hashes[rows.indices] + bits), rows.indptr))
    return np.concatenate(blocks)


def _mix(values: Colours) -> Colours:
    """Scatter 64-bit numbers (the finaliser of SplitMix64, one to one)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _starts(groups: Indices, count: int) -> Indices:
    return np.concatenate([[0], np.cumsum(np.bincount(groups, minlength=count))])


def _segment_sums(values: Colours, starts: NDArray[np.integer]) -> Colours:
    """Sum of ``values[starts[k]:starts[k + 1]]`` for every ``k``; exact, since the sums wrap around."""
    totals = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)])
    sums: Colours = np.diff(totals[starts])
    return sums


def _rank_among_equals(values: Colours) -> Colours:
    order = np.argsort(values, kind="stable")
    position = np.arange(len(values), dtype=np.uint64)
    first = np.append(True, np.diff(values[order]) != 0)
    rank = np.empty_like(position)
    rank[order] = position - np.maximum.accumulate(np.where(first, position, np.uint64(0)))
    return rank


def _first_tie(colours: Colours) -> Indices:
    """The nodes of the smallest colour that more than one node has; empty where all differ."""
    values, counts = np.unique(colours, return_counts=True)
    tied = values[counts > 1]
    return np.flatnonzero(colours == tied[0]) if tied.size else np.empty(0, np.int64)


def _mark(colours: Colours, node: int) -> Colours:
    marked = colours.copy()
    marked[node] ^= np.uint64(1)
    return marked
