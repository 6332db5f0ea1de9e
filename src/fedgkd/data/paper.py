"""The statistics that the FedGKD paper prints of its data (Pan et al., 2023, appendix), for comparison with ours.

Known misprints are marked: Computers with 20 clients has the edges of the whole graph divided by 20, as if no edge
were cut, and no edge count of the overlapping table matches the procedure the paper describes, neither with both
directions counted nor with one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class PaperGraph:
    """A column of the table "Original Graph Statistics"; edges are directed."""

    nodes: int
    edges: int
    features: int
    classes: int
    clustering: float


@dataclass(frozen=True)
class PaperPartition:
    """A column of the (non-)overlapping table: means per client; edges are directed."""

    nodes: int
    edges: int
    clustering: float
    heterogeneity: float
    edges_misprinted: bool = False


def paper_partition(dataset: str, setting: str, clients: int) -> PaperPartition | None:
    """What the paper prints for that federation, or None where it prints nothing."""
    return PARTITIONS.get((setting, dataset, clients))


def difference_percent(ours: Any, paper: PaperGraph | PaperPartition) -> dict[str, float]:
    """By how many percent each of our numbers lies above the paper's, for the numbers that both have."""
    return {
        name: 100 * (getattr(ours, name) / printed - 1)
        for name, printed in asdict(paper).items()
        if name != "edges_misprinted"
    }


GRAPHS = {
    "cora": PaperGraph(2_485, 10_138, 1_433, 7, 0.238),
    "citeseer": PaperGraph(2_120, 7_358, 3_703, 6, 0.170),
    "pubmed": PaperGraph(19_717, 88_648, 500, 3, 0.062),
    "photo": PaperGraph(7_487, 238_086, 745, 8, 0.411),
    "computers": PaperGraph(13_381, 491_556, 767, 10, 0.351),
    "arxiv": PaperGraph(169_343, 2_315_598, 128, 40, 0.226),
}

_NON_OVERLAPPING = {
    ("cora", 5): PaperPartition(497, 1_871, 0.250, 0.304),
    ("cora", 10): PaperPartition(249, 891, 0.261, 0.358),
    ("cora", 20): PaperPartition(124, 424, 0.266, 0.391),
    ("citeseer", 5): PaperPartition(424, 1_411, 0.176, 0.142),
    ("citeseer", 10): PaperPartition(212, 673, 0.177, 0.229),
    ("citeseer", 20): PaperPartition(106, 327, 0.181, 0.255),
    ("pubmed", 5): PaperPartition(3_943, 16_411, 0.063, 0.087),
    ("pubmed", 10): PaperPartition(1_972, 7_557, 0.066, 0.097),
    ("pubmed", 20): PaperPartition(986, 3_616, 0.068, 0.119),
    ("photo", 5): PaperPartition(1_497, 42_930, 0.431, 0.470),
    ("photo", 10): PaperPartition(749, 19_294, 0.458, 0.546),
    ("photo", 20): PaperPartition(374, 8_300, 0.478, 0.568),
    ("computers", 5): PaperPartition(2_676, 84_202, 0.383, 0.350),
    ("computers", 10): PaperPartition(1_338, 35_589, 0.405, 0.373),
    ("computers", 20): PaperPartition(669, 24_577, 0.418, 0.460, edges_misprinted=True),
    ("arxiv", 5): PaperPartition(33_868, 406_896, 0.245, 0.372),
    ("arxiv", 10): PaperPartition(16_934, 182_758, 0.255, 0.398),
    ("arxiv", 20): PaperPartition(8_467, 86_150, 0.268, 0.412),
}

_OVERLAPPING = {
    ("cora", 10): PaperPartition(621, 752, 0.069, 0.176),
    ("cora", 30): PaperPartition(207, 246, 0.087, 0.310),
    ("cora", 50): PaperPartition(124, 141, 0.080, 0.358),
    ("citeseer", 10): PaperPartition(530, 590, 0.053, 0.230),
    ("citeseer", 30): PaperPartition(176, 184, 0.056, 0.215),
    ("citeseer", 50): PaperPartition(106, 104, 0.050, 0.225),
    ("pubmed", 10): PaperPartition(4_929, 6_494, 0.020, 0.153),
    ("pubmed", 30): PaperPartition(1_643, 2_090, 0.021, 0.090),
    ("pubmed", 50): PaperPartition(986, 1_158, 0.022, 0.089),
    ("photo", 10): PaperPartition(1_872, 18_311, 0.291, 0.310),
    ("photo", 30): PaperPartition(623, 5_591, 0.297, 0.416),
    ("photo", 50): PaperPartition(374, 2_987, 0.307, 0.535),
    ("computers", 10): PaperPartition(3_345, 36_597, 0.256, 0.316),
    ("computers", 30): PaperPartition(1_115, 10_283, 0.258, 0.422),
    ("computers", 50): PaperPartition(669, 5_516, 0.268, 0.344),
    ("arxiv", 10): PaperPartition(42_336, 175_717, 0.122, 0.371),
    ("arxiv", 30): PaperPartition(14_112, 51_520, 0.127, 0.363),
    ("arxiv", 50): PaperPartition(8_467, 28_487, 0.131, 0.507),
}

PARTITIONS = {("non-overlapping", *key): column for key, column in _NON_OVERLAPPING.items()} | {
    ("overlapping", *key): replace(column, edges_misprinted=True) for key, column in _OVERLAPPING.items()
}

PAPER_CLIENTS = {"non-overlapping": (5, 10, 20), "overlapping": (10, 30, 50)}
