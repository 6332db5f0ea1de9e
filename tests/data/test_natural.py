"""Federations that nobody cut out of one graph: their files, their members, and how they are divided."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from fedgkd.data.datasets import DATASETS, load_dataset, load_members
from fedgkd.data.graph import UNLABELLED
from fedgkd.data.own import divide_dataset, read_federation, write_federation
from fedgkd.data.partition import partition_members
from fedgkd.data.readers import read_citation, read_twitch
from fedgkd.data.synthetic import synthetic_graph
from fedgkd.errors import DataError, FetchError, SettingError
from fedgkd.experiments.config import make_config


def write_twitch(folder: Path) -> tuple[Path, Path, Path]:
    """Four streamers; rows in an order of their own, as published, and a feature that is named twice."""
    features, edges, target = (folder / name for name in ("XX.json", "XX_edges.csv", "XX_target.csv"))
    features.write_text(json.dumps({"2": [7, 7, 3169], "0": [], "3": [1], "1": [0, 7]}))
    edges.write_text("from,to\n0,3\n3,0\n2,1\n")
    rows = [(11, 50, True, 9, False, 3), (12, 20, False, 5, False, 0), (13, 40, True, 1, True, 1)]
    with target.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "days", "mature", "views", "partner", "new_id"])
        writer.writerows([*rows, (14, 30, False, 7, False, 2)])
    return features, edges, target


@pytest.mark.parametrize(
    ("task", "labels"),
    [("mature", [0, 1, 0, 1]), ("views", [0, 0, 1, 1]), ("days", [0, 1, 0, 1])],
)
def test_a_country_of_twitch(tmp_path: Path, task: str, labels: list[int]) -> None:
    graph = read_twitch(task, *write_twitch(tmp_path))
    assert graph.y.tolist() == labels
    assert graph.num_features == 3_170
    assert isinstance(graph.x, sp.csr_array)
    assert {(node, column) for node, column in zip(*graph.x.nonzero(), strict=True)} == {
        (1, 0),
        (1, 7),
        (2, 7),
        (2, 3169),
        (3, 1),
    }
    assert graph.x.max() == 1.0, "a feature that is named twice is one feature"
    assert graph.edge_index.T.tolist() == [[0, 3], [3, 0], [2, 1]]


def test_a_citation_network_leaves_papers_of_two_fields_unlabelled(tmp_path: Path) -> None:
    network = sp.csc_matrix(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 1]], np.float64))
    group = np.array([[0, 1, 0, 0, 0], [1, 0, 0, 1, 0], [0, 0, 0, 0, 1]], np.uint8)
    path = tmp_path / "net.mat"
    scipy.io.savemat(path, {"network": network, "group": group, "attrb": np.eye(3, 6, dtype=np.uint8)})
    graph = read_citation(path)
    assert graph.y.tolist() == [1, UNLABELLED, 4]
    assert (graph.num_nodes, graph.num_features, graph.num_classes, graph.num_edges) == (3, 6, 5, 5)


def test_a_damaged_file_gets_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "net.mat").write_bytes(b"MATLAB 5.0 MAT-file, but not really" * 9)
    with pytest.raises(DataError, match=r"net\.mat: not readable as published"):
        read_citation(tmp_path / "net.mat")
    features, edges, target = write_twitch(tmp_path)
    features.write_text('{"0": ')
    with pytest.raises(DataError, match=r"XX\.json: not readable as published"):
        read_twitch("views", features, edges, target)


def test_members_are_divided_each_by_itself() -> None:
    members = {name: synthetic_graph(num_nodes=60, seed=k) for k, name in enumerate(("north", "south"))}
    alone = partition_members(members, 2, dataset="two")
    assert alone.names == ("north", "south")
    assert [graph.num_nodes for graph in alone.graphs] == [60, 60]
    assert alone.groups is None, "nothing is known of their tasks"
    parts = partition_members(members, 6, dataset="two")
    assert parts.names == ("north-0", "north-1", "north-2", "south-0", "south-1", "south-2")
    assert parts.groups == ("north",) * 3 + ("south",) * 3
    assert sum(graph.num_nodes for graph in parts.graphs) == 120
    assert partition_members(members, 4, dataset="two", groups=("a", "b")).groups == ("a", "a", "b", "b")
    with pytest.raises(SettingError, match="the number of clients must be a multiple of 2, not 5"):
        partition_members(members, 5, dataset="two")
    with pytest.raises(SettingError, match="a multiple of 5, not 3 for each graph"):
        partition_members(members, 6, "overlapping", dataset="two")


def test_groups_survive_on_disk(tmp_path: Path) -> None:
    members = {name: synthetic_graph(num_nodes=60, seed=k) for k, name in enumerate(("north", "south"))}
    federation = partition_members(members, 4, dataset="two")
    write_federation(federation, tmp_path / "parts")
    assert read_federation(tmp_path / "parts").groups == federation.groups


def test_a_natural_federation_is_no_single_graph_and_has_a_client_for_each() -> None:
    with pytest.raises(DataError, match="'twitch' is a federation of 7 graphs, not one graph"):
        load_dataset("twitch")
    config = make_config(("command line", {"dataset": "citation"}))
    assert (config.run.clients, config.origins["clients"]) == (3, "one for each graph of citation")
    assert make_config(("command line", {"dataset": "citation", "clients": 15})).run.clients == 15
    with pytest.raises(SettingError, match="takes none"):
        load_members("twitch", num_nodes=3)


def test_without_files_it_says_what_to_bring(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"no source could serve twitch/DE.json.* bring them by hand into"):
        load_members("twitch", tmp_path, cache_dir=tmp_path / "cache")


def test_members_of_the_three_tasks_share_nodes_and_not_labels() -> None:
    dataset = DATASETS["twitch-tasks"]
    assert len(dataset.members) == 21
    assert dataset.groups == ("mature",) * 7 + ("views",) * 7 + ("days",) * 7


@pytest.mark.parametrize("name", ["twitch", "twitch-views", "twitch-days", "citation"])
def test_as_published(name: str, tmp_path: Path) -> None:
    """Every count of the catalogue, and every row of the features scaled."""
    folder = os.environ.get("FEDGKD_DATA")
    if not folder or not (Path(folder) / "twitch").is_dir():
        pytest.skip("needs the published files: set FEDGKD_DATA to the folder that holds them")
    federation = divide_dataset(name, len(DATASETS[name].members), "non-overlapping", 0, data_dir=Path(folder))
    for graph in federation.graphs:
        sums = np.asarray(graph.x.sum(axis=1))
        assert np.all(np.isclose(sums, 1.0, atol=1e-5) | (sums == 0.0))
    if name in ("twitch-views", "twitch-days"):
        # At most half are above the median.
        assert all(0.45 < graph.y.mean() <= 0.5 for graph in federation.graphs)
