"""Graphs as ``nodes.csv`` and ``edges.csv``, and every row that is wrong."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from fedgkd.data import tables
from fedgkd.data.tables import natural_key, read_tables
from fedgkd.errors import DataError

NODES = "id,age,label,height\nann,30,red,1.5\nbob,4e1,blue,2\n7,0,,-1\n"
EDGES = "from,to,weight\nann,bob,1\n7,ann,2\n"


def write(folder: Path, nodes: str = NODES, edges: str | None = EDGES) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "nodes.csv").write_text(nodes, encoding="utf-8")
    if edges is not None:
        (folder / "edges.csv").write_text(edges, encoding="utf-8")
    return folder


def test_what_the_tables_say(tmp_path: Path) -> None:
    graph = read_tables(write(tmp_path)).to_graph()
    assert isinstance(graph.x, np.ndarray)
    assert graph.x.tolist() == [[30, 1.5], [40, 2], [0, -1]]
    assert graph.edge_index.T.tolist() == [[0, 1], [0, 2], [1, 0], [2, 0]]
    assert graph.class_names == ("blue", "red")
    assert graph.y.tolist() == [1, 0, -1]
    assert graph.feature_names == ("age", "height")
    assert graph.node_names == ("ann", "bob", "7")
    assert graph.name == str(tmp_path)


def test_directed_edges_stay_as_they_are(tmp_path: Path) -> None:
    assert read_tables(write(tmp_path), directed=True).edge_index.T.tolist() == [[0, 1], [2, 0]]


@pytest.mark.parametrize("label", ["label", 3, "3"])
def test_the_label_column_by_name_or_number(label: str | int, tmp_path: Path) -> None:
    assert read_tables(write(tmp_path), label=label).class_names == ("blue", "red")


@pytest.mark.parametrize("label", ["٣", "0", "5", "-1", "3.0", "9" * 5000])
def test_a_label_column_that_is_not_there(label: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nodes\.csv: no label column '.*'; the columns are id, age, label, height"):
        read_tables(write(tmp_path), label=label)


def test_a_column_called_like_a_number_is_found_by_name(tmp_path: Path) -> None:
    folder = write(tmp_path, "id,2,1\na,x,5\nb,y,6\n", "s,t\n")
    assert read_tables(folder, label="2").class_names == ("x", "y")


def test_classes_are_in_natural_order(tmp_path: Path) -> None:
    folder = write(tmp_path, "id,f,label\na,0,10\nb,0,9\nc,0,2\n", "s,t\n")
    assert read_tables(folder).class_names == ("2", "9", "10")
    names = ["client-10", "client-2", "b", "client-2b", "10", "9", "client-02"]
    assert sorted(names, key=natural_key) == ["9", "10", "b", "client-02", "client-2", "client-2b", "client-10"]


def test_classes_can_be_given(tmp_path: Path) -> None:
    found = read_tables(write(tmp_path))
    assert found.to_graph(("red", "green", "blue")).y.tolist() == [0, 2, -1]
    with pytest.raises(DataError, match=r"nodes\.csv, row 3: label 'blue' is none of the classes red, green"):
        found.to_graph(("red", "green"))


def test_labels_may_be_missing_for_prediction(tmp_path: Path) -> None:
    folder = write(tmp_path, "id,f\na,1\nb,2\n", "s,t\na,b\n")
    found = read_tables(folder, labels_required=False)
    assert found.to_graph(num_classes=3).y.tolist() == [-1, -1]
    assert found.to_graph(("p", "q")).class_names == ("p", "q")
    with pytest.raises(DataError, match="no node has a label, so the classes must be given"):
        found.to_graph()
    with pytest.raises(DataError, match=r"nodes\.csv: no label column 'label'; the columns are id, f"):
        read_tables(folder)


def test_what_editors_and_spreadsheets_leave(tmp_path: Path) -> None:
    nodes = '\ufeffid, f , label\r\n\r\n a , 1.5 , x\r\n"b,""c""",2,y\r\n\r\n'
    graph = read_tables(write(tmp_path, nodes, 's,t\n"b,""c""", a\n')).to_graph()
    assert graph.node_names == ("a", 'b,"c"')
    assert graph.feature_names == ("f",)
    assert graph.num_edges == 2


def test_many_rows_are_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_CELLS_AT_A_TIME", 12)
    nodes = "id,f,label\n" + "".join(f"n{i},{i},{i % 2}\n" for i in range(11))
    edges = "s,t\n" + "".join(f"n{i},n{i + 1}\n" for i in range(10))
    graph = read_tables(write(tmp_path, nodes, edges)).to_graph()
    assert (graph.num_nodes, graph.num_edges) == (11, 20)
    assert graph.x[:, 0].tolist() == list(range(11))
    with pytest.raises(DataError, match=r"edges\.csv, row 7"):
        read_tables(write(tmp_path, nodes, edges.replace("n5,n6", "n5,n60")))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("", r"nodes\.csv: the file is empty; it needs a header row"),
        ("id,f,label\n", r"nodes\.csv: the graph is empty \(a header, but no nodes\)"),
        ("id,label\na,x\n", r"nodes\.csv: no feature columns beside id and label"),
        ("id,f,f,label\na,1,2,x\n", r"nodes\.csv: two columns of the header are called 'f'"),
        ("label,f\nx,1\n", r"nodes\.csv: the first column holds the node ids"),
        ("id,f,label\na,1,x\nb,2\n", r"nodes\.csv, row 3: 2 fields, but the header has 3"),
        ("id,f,label\na,1,x\n\n\nb,2,y,z\n", r"nodes\.csv, row 5: 4 fields, but the header has 3"),
        ("id,f,label\na,1,x\nb,2,y\na,3,x\n", r"nodes\.csv, row 4: node id 'a' stands already in row 2"),
        ("id,f,label\na,1,x\n,2,y\n", r"nodes\.csv, row 3: the node has no id"),
        ("id,f,g,label\na,1,2,x\nb,1,tall,y\n", r"nodes\.csv, row 3: column 'g' holds 'tall', which is not a finite"),
        ("id,f,label\na,1,x\nb,,y\n", r"nodes\.csv, row 3: column 'f' holds '', which is not a finite number"),
        ("id,f,label\na,nan,x\nb,1,y\n", r"nodes\.csv, row 2: column 'f' holds 'nan', which is not a finite number"),
        ("id,f,label\na,1,x\nb,-inf,y\n", r"nodes\.csv, row 3: column 'f' holds '-inf'"),
        ("id,f,label\na,1,x\nb,1e300,y\n", r"nodes\.csv, row 3: column 'f' holds '1e300'"),
        (
            "id,f,label\na,1_000,x\nb,1,y\n",
            r"nodes\.csv, row 2: column 'f' holds '1_000', which is not a finite number",
        ),
        ("id,f,label\na,١,x\nb,1,y\n", r"nodes\.csv, row 2: column 'f' holds '١', which is not a finite number"),
        ("id,f,label\na,1,x\nb\0,1,y\n", r"nodes\.csv, row 3: holds the control character '.x00'; save it as text"),
        (f"id,f,label\na,{'9' * 5000},x\n", r"nodes\.csv, row 2: column 'f' holds '9{79}…', which is not a finite"),
        ("id,f,,label\na,1,2,x\nb,1,2,y\n", "feature_names holds an empty name"),
        ('id,f,label\na,1,x\n"b,2,y\n', r"nodes\.csv, row 3: unexpected end of data"),
    ],
)
def test_bad_nodes_are_named(nodes: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read_tables(write(tmp_path, nodes, "s,t\n")).to_graph()


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (None, r"edges\.csv: no such file; a graph in tables needs nodes\.csv and edges\.csv"),
        ("", r"edges\.csv: the file is empty"),
        ("from\nann\n", r"edges\.csv: two columns are needed"),
        ("from,to\nann,bob\nann,eve\n", r"edges\.csv, row 3: column 'to' names node 'eve', which is not in nodes\.csv"),
        ("from,to\neve,bob\n", r"edges\.csv, row 2: column 'from' names node 'eve'"),
        ("from,to\nann,bob\nann\n", r"edges\.csv, row 3: 1 fields, but the header has 2"),
        ("ann,bob\n7,ann\n", r"edges\.csv: the first row is an edge, not a header"),
        ("ann,eve\n7,ann\n", r"edges\.csv: the first row is an edge, not a header"),
    ],
)
def test_bad_edges_are_named(edges: str | None, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read_tables(write(tmp_path, edges=edges))


def test_classes_of_more_digits_than_python_converts(tmp_path: Path) -> None:
    long, longer = "9" * 5000, "1" + "0" * 5000
    folder = write(tmp_path, f"id,f,label\na,1,{longer}\nb,2,{long}\nc,3,08\nd,3,9\n", "s,t\n")
    assert read_tables(folder).class_names == ("08", "9", long, longer)


def test_many_columns_are_compared_at_once(tmp_path: Path) -> None:
    columns = 50_000
    header = ",".join(f"c{i}" for i in range(columns))
    nodes = f"id,{header},label\na{',1' * columns},x\nb{',2' * columns},y\n"
    began = time.process_time()
    assert read_tables(write(tmp_path, nodes, "s,t\n")).to_graph().num_features == columns
    assert time.process_time() - began < 5


def test_a_single_class_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="needs at least 2 classes, found 1"):
        read_tables(write(tmp_path, "id,f,label\na,1,x\nb,2,x\n", "s,t\n")).to_graph()


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "nodes.csv").write_bytes("id,f,label\na,1,\xe9\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"nodes\.csv: not text in UTF-8"):
        read_tables(tmp_path)
