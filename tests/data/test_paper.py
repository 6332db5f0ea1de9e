"""The paper's tables as data: consistent with themselves, misprints marked."""

import pytest

from fedgkd.data.paper import GRAPHS, PAPER_CLIENTS, PARTITIONS, difference_percent, paper_partition
from fedgkd.data.statistics import FederationStatistics, GraphStatistics


def test_every_cell_is_there() -> None:
    expected = {
        (setting, name, clients) for setting, numbers in PAPER_CLIENTS.items() for name in GRAPHS for clients in numbers
    }
    assert set(PARTITIONS) == expected
    assert len(expected) == 36


def test_nodes_are_those_of_the_whole_graph() -> None:
    for (setting, name, clients), column in PARTITIONS.items():
        share = clients if setting == "non-overlapping" else 2 * (clients / 5)
        assert column.nodes == pytest.approx(GRAPHS[name].nodes / share, abs=1)


def test_misprints_are_marked() -> None:
    marked = {key for key, column in PARTITIONS.items() if column.edges_misprinted}
    assert {key for key in marked if key[0] == "non-overlapping"} == {("non-overlapping", "computers", 20)}
    assert {key for key in PARTITIONS if key[0] == "overlapping"} <= marked
    misprint = PARTITIONS["non-overlapping", "computers", 20]
    assert misprint.edges == GRAPHS["computers"].edges // 20


def test_columns_as_printed() -> None:
    cora = paper_partition("cora", "non-overlapping", 10)
    assert cora is not None
    assert (cora.nodes, cora.edges, cora.clustering, cora.heterogeneity) == (249, 891, 0.261, 0.358)
    arxiv = paper_partition("arxiv", "overlapping", 50)
    assert arxiv is not None
    assert (arxiv.nodes, arxiv.edges, arxiv.clustering, arxiv.heterogeneity) == (8_467, 28_487, 0.131, 0.507)
    assert paper_partition("cora", "non-overlapping", 7) is None
    assert paper_partition("mine", "overlapping", 10) is None


def test_difference_in_percent() -> None:
    whole = GraphStatistics(2_485, 10_138, 1_433, 7, clustering=0.238 * 1.1, homophily=0.8, isolated=0)
    assert difference_percent(whole, GRAPHS["cora"]) == pytest.approx(
        {"nodes": 0, "edges": 0, "features": 0, "classes": 0, "clustering": 10}
    )
    parts = FederationStatistics(10, 249, 891 / 2, 0.261, 0.8, 0.358 * 2, lost_edges=0.1)
    column = PARTITIONS["non-overlapping", "cora", 10]
    assert difference_percent(parts, column) == pytest.approx(
        {"nodes": 0, "edges": -50, "clustering": 0, "heterogeneity": 100}
    )
