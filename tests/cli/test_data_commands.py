"""``fedgkd data`` and ``fedgkd partition`` as a user types them, on generated and own graphs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from fedgkd.cli import app
from fedgkd.data.own import read_federation
from tests.data.files import write_npz, write_tables

SMALL = ("--synthetic", "num_nodes=120", "num_communities=4")


def fedgkd(*args: str | Path) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def ok(*args: str | Path) -> str:
    found = fedgkd(*args)
    assert found.exit_code == 0, found.output
    assert found.stderr == ""
    return found.stdout


def as_json(*args: str | Path) -> Any:
    return json.loads(ok(*args, "--json"))


def error(*args: str | Path) -> str:
    found = fedgkd(*args)
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.count("\n") == 1
    return found.stderr


def test_list(tmp_path: Path) -> None:
    text = ok("data", "list", "--data-dir", tmp_path)
    assert "computers" in text
    assert "491,556" in text
    rows = {row["name"]: row for row in as_json("data", "list", "--data-dir", tmp_path)}
    assert list(rows)[:7] == ["cora", "citeseer", "pubmed", "photo", "computers", "arxiv", "synthetic"]
    assert (rows["twitch"]["graphs"], rows["twitch"]["nodes"], rows["twitch"]["files"]) == (7, 36_890, "to fetch")
    assert rows["cora"]["nodes"] == 2_485
    assert rows["synthetic"]["files"] == "none needed"


def test_list_says_what_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDGKD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "amazon").mkdir()
    (tmp_path / "amazon" / "amazon_electronics_photo.npz").write_bytes(b"")
    files = {row["name"]: row["files"] for row in as_json("data", "list", "--data-dir", tmp_path)}
    assert (files["photo"], files["computers"]) == ("here", "to fetch")


def test_fetch() -> None:
    assert ok("data", "fetch", "synthetic") == "synthetic: ready (2,000 nodes, 16,000 directed edges)\n"
    assert as_json("data", "fetch", "synthetic") == [{"name": "synthetic", "nodes": 2_000, "edges": 16_000}]
    assert "did you mean 'cora'?" in error("data", "fetch", "synthetic", "coar")


def test_show_own_graph(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "mine", "abba")
    text = ok("data", "show", folder)
    assert "directed edges" in text
    found = as_json("data", "show", folder)
    assert found["nodes_per_class"] == {"a": 2, "b": 2}
    assert (found["statistics"]["nodes"], found["statistics"]["edges"]) == (4, 6)
    assert as_json("data", "show", folder, "--label", "4")["nodes_per_class"] == {"a": 2, "b": 2}
    assert "no label column 'colour'" in error("data", "show", folder, "--label", "colour")


def test_a_number_that_does_not_exist_is_null(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", x=np.ones((2, 1)), edge_index=np.empty((2, 0), int), y=np.array([0, 1]))
    assert as_json("data", "show", tmp_path / "g.npz")["statistics"]["homophily"] is None
    assert "–" in ok("data", "show", tmp_path / "g.npz")


def test_show_synthetic_and_bad_options() -> None:
    assert as_json("data", "show", "synthetic", *SMALL)["statistics"]["nodes"] == 120
    assert "has no option 'size'" in error("data", "show", "synthetic", "--synthetic", "size=3")


def test_stats_takes_several_clients_after_one_flag() -> None:
    found = as_json("data", "stats", "synthetic", *SMALL, "--clients", "2", "5", "10", "--seed", "3")
    assert [(part["setting"], part["clients"]) for part in found["partitions"]] == [
        ("non-overlapping", 2),
        ("non-overlapping", 5),
        ("non-overlapping", 10),
        ("overlapping", 5),
        ("overlapping", 10),
    ]
    assert {part["seed"] for part in found["partitions"]} == {3}
    assert found["partitions"][0]["ours"]["nodes"] == 60
    assert found["partitions"][0]["paper"] is None
    assert found["graphs"][0]["ours"]["nodes"] == 120


def test_stats_of_one_setting_and_of_own_graphs(tmp_path: Path) -> None:
    found = as_json("data", "stats", "synthetic", *SMALL, "--clients", "10", "--overlapping")
    assert [part["setting"] for part in found["partitions"]] == ["overlapping"]
    assert "a multiple of 5, not 7" in error("data", "stats", "synthetic", *SMALL, "--clients", "7", "--overlapping")
    path = write_npz(tmp_path / "mine.npz", [0, 1, 0])
    found = as_json("data", "stats", path, "synthetic")
    assert [graph["dataset"] for graph in found["graphs"]] == [str(path), "synthetic"]
    assert found["partitions"] == []
    assert "Graphs" in ok("data", "stats", path)


def test_stats_beside_the_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.environ.get("FEDGKD_DATA"):
        pytest.skip("needs the published files: set FEDGKD_DATA to the folder that holds them")
    monkeypatch.setenv("FEDGKD_CACHE", str(tmp_path))
    text = ok("data", "stats", "cora", "--clients", "5", "10", "20")
    assert max(len(line) for line in text.splitlines()) <= 100
    for fragment in ("Graphs", "Non-overlapping", "Overlapping", "10,138", "1,871", "752*", "known misprint"):
        assert fragment in text
    found = as_json("data", "stats", "cora")
    assert [(part["setting"], part["clients"]) for part in found["partitions"]] == [
        *(("non-overlapping", clients) for clients in (5, 10, 20)),
        *(("overlapping", clients) for clients in (10, 30, 50)),
    ]
    assert found["graphs"][0]["difference_percent"]["edges"] == 0
    for part in found["partitions"]:
        assert part["paper"]["edges_misprinted"] == (part["setting"] == "overlapping")
        if part["setting"] == "non-overlapping":
            assert abs(part["difference_percent"]["edges"]) < 3


def test_partition_writes_what_run_reads(tmp_path: Path) -> None:
    out = tmp_path / "out"
    args = ("partition", "synthetic", *SMALL, "--clients", "3", "--seed", "5", "--ratios", "0.5", "0.3", "0.2")
    text = ok(*args, "--out", out)
    federation = read_federation(out)
    assert f"partition {federation.partition_hash[:12]} in {out}" in text
    assert (federation.num_clients, federation.seed, federation.setting) == (3, 5, "non-overlapping")
    assert sum(int(graph.masks[0].sum()) for graph in federation.graphs if graph.masks) == 60
    found = as_json(*args, "--out", out)  # an earlier partition is replaced
    assert found["partition_hash"] == federation.partition_hash
    assert [client["name"] for client in found["clients"]] == ["client-0", "client-1", "client-2"]
    assert sum(client["nodes"] for client in found["clients"]) == 120
    assert as_json("data", "show", out) == found


def test_partition_of_own_tables(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "mine", "ab" * 20)
    found = as_json("partition", folder, "--clients", "5", "--overlapping", "--out", tmp_path / "out")
    assert (found["dataset"], found["setting"]) == ("mine", "overlapping")
    assert [client["nodes"] for client in found["clients"]] == [20] * 5


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--clients", "7", "--overlapping"), "a multiple of 5, not 7"),
        (("--clients", "121"), "121 clients are not possible: synthetic has 120 nodes"),
        (("--clients", "3", "--setting", "metis"), "unknown partition setting 'metis'; choose from non-overlapping"),
        (("--clients", "5", "--setting", "louvain", "--overlapping"), "--overlapping and --setting louvain exclude"),
        (("--clients", "3", "--ratios", "0.5", "0.5"), "--ratios takes three numbers (train, val, test), not 2"),
        (("--clients", "3", "--ratios", "0.9", "0.9", "0.1"), "their sum at most 1"),
        (("--clients", "120"), "no training node among its 1 nodes"),
    ],
)
def test_partition_refuses_and_leaves_nothing(args: tuple[str, ...], message: str, tmp_path: Path) -> None:
    assert message in error("partition", "synthetic", *SMALL, *args, "--out", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_partition_does_not_write_where_it_must_not(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("ten years")
    args = ("partition", "synthetic", *SMALL, "--clients", "3", "--out")
    assert "holds 'thesis.txt', which is not ours to replace" in error(*args, tmp_path)
    assert "is a file, not a folder" in error(*args, tmp_path / "thesis.txt")
    assert "cannot write" in error(*args, tmp_path / "thesis.txt" / "out")
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]


def test_bad_tables_name_the_row(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "mine", "abab")
    with (folder / "edges.csv").open("a") as stream:
        stream.write("n0,n9\n")
    message = error("partition", folder, "--clients", "2", "--out", tmp_path / "out")
    assert "edges.csv, row 5: column 't' names node 'n9', which is not in nodes.csv" in message
    assert not (tmp_path / "out").exists()


def test_a_data_directory_is_a_folder(tmp_path: Path) -> None:
    assert "is a file, not a folder" in error("data", "list", "--data-dir", write_npz(tmp_path / "g.npz", [0, 1]))
