"""Users' own graphs and federations, and the folder that a partition is written to."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedgkd.data.federation import Federation
from fedgkd.data.npz import save_graph
from fedgkd.data.own import holds_clients, open_graph, read_federation, read_graph, write_federation
from fedgkd.data.partition import partition
from fedgkd.data.synthetic import synthetic_graph
from fedgkd.errors import DataError
from tests.data.files import write_npz, write_tables
from tests.graphs import random_graph


def made(clients: int = 3) -> Federation:
    return partition(synthetic_graph(num_nodes=90, num_communities=3), clients, seed=4)


def test_one_graph_from_a_file_or_a_folder(tmp_path: Path) -> None:
    assert read_graph(write_npz(tmp_path / "g.npz", [0, 1, 1])).num_nodes == 3
    folder = write_tables(tmp_path / "g", "abba")
    assert read_graph(folder).class_names == ("a", "b")
    assert read_graph(folder, class_names=("b", "a")).y.tolist() == [1, 0, 0, 1]
    assert read_graph(folder, label=4).class_names == ("a", "b")


def test_labels_may_be_missing_for_prediction(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "g", "ab")
    (folder / "nodes.csv").write_text("id,f,g\nn0,1,1\nn1,1,1\n")
    assert read_graph(folder, labels_required=False, num_classes=2).y.tolist() == [-1, -1]


def test_open_graph_knows_datasets_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_graph("synthetic", num_nodes=50, num_communities=2).num_nodes == 50
    assert open_graph(str(write_npz(tmp_path / "mine.npz", [0, 1]))).name == "mine"
    write_tables(tmp_path / "my.tables", "ab")
    monkeypatch.chdir(tmp_path)
    assert open_graph("my.tables").name == "my.tables"
    with pytest.raises(DataError, match=r"'yours' is neither a dataset \(cora, .*citation\) nor a file or folder"):
        open_graph("yours")
    with pytest.raises(DataError, match=r"not a graph; a folder of tables holds nodes\.csv"):
        open_graph(str(tmp_path))


def test_holds_clients(tmp_path: Path) -> None:
    write_tables(tmp_path / "one", "ab")
    assert holds_clients(str(tmp_path))
    assert not holds_clients(str(tmp_path / "one"))
    assert not holds_clients(str(tmp_path / "two"))
    assert not holds_clients("cora")


def test_clients_come_in_natural_order_with_all_classes(tmp_path: Path) -> None:
    write_tables(tmp_path / "client-10", "abab")
    write_tables(tmp_path / "client-2", "ccaa")
    write_tables(tmp_path / "client-1", "bbbb")  # sees one class only
    (tmp_path / "README.txt").write_text("ignored")
    (tmp_path / ".hidden").mkdir()
    federation = read_federation(tmp_path, seed=3, ratios=(0.5, 0.25, 0.25))
    assert federation.names == ("client-1", "client-2", "client-10")
    assert {graph.class_names for graph in federation.graphs} == {("a", "b", "c")}
    assert [graph.y.tolist() for graph in federation.graphs] == [[1, 1, 1, 1], [2, 2, 0, 0], [0, 1, 0, 1]]
    assert [int(graph.masks[0].sum()) for graph in federation.graphs if graph.masks] == [2, 2, 2]
    assert (federation.dataset, federation.setting, federation.seed) == (tmp_path.name, "own-graphs", 3)
    again = read_federation(tmp_path, seed=3, ratios=(0.5, 0.25, 0.25))
    assert again.partition_hash == federation.partition_hash


def test_files_without_a_number_of_classes_take_the_largest(tmp_path: Path) -> None:
    write_npz(tmp_path / "a.npz", [0, 0, 0, 0])
    write_npz(tmp_path / "b.npz", [0, 1, 2, 3])
    assert read_federation(tmp_path).num_classes == 4


def test_masks_of_the_clients_are_honoured(tmp_path: Path) -> None:
    graphs = [random_graph(seed=seed) for seed in range(2)]
    for i, graph in enumerate(graphs):
        save_graph(tmp_path / f"{i}.npz", graph)
    federation = read_federation(tmp_path)
    assert federation.seed is None
    np.testing.assert_array_equal(federation.graphs[1].train_mask, graphs[1].train_mask)


def test_a_client_that_does_not_fit_is_named(tmp_path: Path) -> None:
    write_tables(tmp_path / "a", "abab")
    write_tables(tmp_path / "b", "abab", features="f,h")
    with pytest.raises(DataError, match="b: feature column 1 is 'h', but 'g' at a"):
        read_federation(tmp_path)
    write_tables(tmp_path / "b" / "x", "ab")  # a folder within a client is none of its tables
    (tmp_path / "b" / "nodes.csv").write_text("id,f,label\nn0,1,a\nn1,1,b\n")
    (tmp_path / "b" / "edges.csv").write_text("s,t\n")
    with pytest.raises(DataError, match="b has 1 feature columns, but a has 2"):
        read_federation(tmp_path)


def test_a_client_without_a_training_node_is_named(tmp_path: Path) -> None:
    graph = random_graph()
    save_graph(tmp_path / "good.npz", graph)
    save_graph(tmp_path / "poor.npz", replace(graph, train_mask=np.zeros(12, np.bool_)))
    with pytest.raises(DataError, match="poor: no training node among its 12 nodes"):
        read_federation(tmp_path)


def test_folders_that_hold_no_federation(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        read_federation(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"no graphs; expected an \.npz file or a subfolder of tables"):
        read_federation(tmp_path)
    with pytest.raises(DataError, match="holds a single graph, not one per client"):
        read_federation(write_tables(tmp_path / "one", "ab"))
    write_npz(tmp_path / "one.npz", [0, 1])
    with pytest.raises(DataError, match=r"client 'one' is there twice, as one and as one\.npz"):
        read_federation(tmp_path)


def test_an_empty_subfolder_is_not_passed_over(tmp_path: Path) -> None:
    write_npz(tmp_path / "a.npz", [0, 1])
    (tmp_path / "b").mkdir()
    with pytest.raises(DataError, match=r"b/nodes\.csv: no such file"):
        read_federation(tmp_path)


def test_a_written_federation_reads_the_same(tmp_path: Path) -> None:
    federation = made(12)
    write_federation(federation, tmp_path / "out")
    again = read_federation(tmp_path / "out")
    assert again.partition_hash == federation.partition_hash
    for field in ("dataset", "setting", "seed", "names"):
        assert getattr(again, field) == getattr(federation, field)
    for theirs, ours in zip(again.graphs, federation.graphs, strict=True):
        np.testing.assert_array_equal(theirs.x, ours.x)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["partition_hash"] == federation.partition_hash
    assert (manifest["dataset"], manifest["setting"], manifest["seed"]) == ("synthetic", "non-overlapping", 4)
    assert manifest["clients"] == 12
    assert {"fedgkd", "numpy", "pymetis"} <= set(manifest["versions"])


def test_own_graphs_can_be_written_too(tmp_path: Path) -> None:
    federation = Federation((random_graph(), random_graph(seed=1)), "mine", "own-graphs", names=("site a", "site b"))
    write_federation(federation, tmp_path / "out")
    again = read_federation(tmp_path / "out")
    assert (again.node_ids, again.names) == (None, ("site a", "site b"))


def test_equal_federations_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_federation(made(), tmp_path / name)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_an_earlier_partition_is_replaced(tmp_path: Path) -> None:
    write_federation(made(5), tmp_path / "out")
    write_federation(made(2), tmp_path / "out")
    assert sorted(entry.name for entry in (tmp_path / "out").iterdir()) == [
        "client-0.npz",
        "client-1.npz",
        "manifest.json",
    ]
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    write_federation(made(), tmp_path)  # empty: welcome
    (tmp_path / "thesis.txt").write_text("ten years")
    with pytest.raises(DataError, match=r"holds 'thesis\.txt', which is not ours to replace"):
        write_federation(made(), tmp_path)
    (tmp_path / "thesis.txt").unlink()
    (tmp_path / "manifest.json").unlink()  # now these might be a user's own clients
    with pytest.raises(DataError, match=r"holds 'client-0\.npz', which is not ours to replace"):
        write_federation(made(), tmp_path)
    with pytest.raises(DataError, match="is a file, not a folder"):
        write_federation(made(), tmp_path / "client-0.npz")
    assert len(list(tmp_path.iterdir())) == 3


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *_: object, **__: object) -> None:
        if path.name == "client-2.npz":
            raise DataError("cannot write client-2.npz: No space left on device")
        path.write_bytes(b"")

    monkeypatch.setattr("fedgkd.data.own.save_graph", full)
    with pytest.raises(DataError, match="No space left"):
        write_federation(made(), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def _change_features(folder: Path) -> None:
    graph = read_graph(folder / "client-1.npz")
    save_graph(folder / "client-1.npz", replace(graph, x=graph.x * 2))


def _change_hash(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    said = json.loads(text)["partition_hash"]
    (folder / "manifest.json").write_text(text.replace(said, said[::-1]))


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (_change_features, r"client-1\.npz: not as manifest\.json says; write the partition again, or remove"),
        (lambda folder: (folder / "client-1.npz").unlink(), r"client-1\.npz: not as manifest\.json says"),
        (lambda folder: write_npz(folder / "client-9.npz", [0, 1]), r"client-9\.npz: not as manifest\.json says"),
        (lambda folder: write_tables(folder / "client-9", "ab"), r"client-9: not as manifest\.json says"),
        (_change_hash, "the partition hash is not that of the files"),
        (lambda folder: (folder / "manifest.json").write_text("{"), r"manifest\.json is not JSON"),
        (lambda folder: (folder / "manifest.json").write_text("[]"), r"manifest\.json holds no fields"),
        (lambda folder: (folder / "manifest.json").write_text("{}"), r"manifest\.json: 'dataset' is missing"),
        (
            lambda folder: (folder / "manifest.json").write_text('{"files": {"../../x.npz": "0"}}'),
            r"manifest\.json: 'dataset' is missing",
        ),
    ],
)
def test_a_changed_partition_is_noticed(tamper: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    write_federation(made(), tmp_path / "out")
    tamper(tmp_path / "out")
    with pytest.raises(DataError, match=message):
        read_federation(tmp_path / "out")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dataset", 3),
        ("setting", None),
        ("seed", "4"),
        ("seed", True),
        ("seed", -1),
        ("clients", 2),
        ("files", []),
        ("partition_hash", 7),
        ("groups", ["a"]),
        ("groups", "abc"),
    ],
)
def test_a_manifest_of_other_kinds(field: str, value: object, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    write_federation(made(), folder)
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(DataError, match=r"manifest\.json: .*write the partition again, or remove manifest\.json"):
        read_federation(folder)


def test_classes_by_name_and_by_number_do_not_mix(tmp_path: Path) -> None:
    write_tables(tmp_path / "a" / "client-0", "abba")
    write_npz(tmp_path / "a" / "client-1.npz", [0, 1, 1, 0])
    with pytest.raises(DataError, match=r"client-1\.npz: the classes are numbers, but other clients call them a, b"):
        read_federation(tmp_path / "a")
    write_tables(tmp_path / "b" / "client-0", "1001")
    write_npz(tmp_path / "b" / "client-1.npz", [0, 1, 1, 0])
    assert read_federation(tmp_path / "b").num_classes == 2


def test_names_of_the_second_and_third_client_are_compared_too(tmp_path: Path) -> None:
    graph = random_graph()
    save_graph(tmp_path / "a.npz", graph)
    save_graph(tmp_path / "b.npz", replace(graph, class_names=("p", "q", "r")))
    save_graph(tmp_path / "c.npz", replace(graph, class_names=("q", "p", "r")))
    with pytest.raises(DataError, match="c: class 'q' does not stand at the same place at b"):
        read_federation(tmp_path)


def test_names_that_cannot_be(tmp_path: Path) -> None:
    for read in (read_graph, read_federation):
        with pytest.raises(DataError, match="File name too long"):
            read(tmp_path / ("x" * 300))
    for read_name in (open_graph, holds_clients):
        with pytest.raises(DataError, match="File name too long"):
            read_name(str(tmp_path / ("x" * 300)))
    write_npz(tmp_path / "a\nb.npz", [0, 1])
    with pytest.raises(DataError, match=r"the name 'a.nb' cannot be shown on a screen"):
        read_federation(tmp_path)
