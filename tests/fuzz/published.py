"""Published formats: Planetoid's pickles, LINQS's tables, the Open Graph Benchmark's archive."""

from __future__ import annotations

import copy
import gzip
import pickle
import random
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedgkd.data.graph import Graph
from fedgkd.data.readers import read_linqs, read_ogb, read_planetoid
from tests.fuzz.arrays import sparse_table
from tests.fuzz.core import Target
from tests.fuzz.values import NUMBERS, TEXTS, extreme

FILES = ("allx", "ally", "tx", "ty", "graph", "test.index")


class Bomb:
    """A pickle's bytes as they are."""

    def __init__(self, data: bytes) -> None:
        self.data = data


BOMBS = (
    Bomb(b"\x80\x02]r\xff\xff\xff\x7f."),  # a place in the memo that takes gigabytes
    Bomb(b"\x80\x02]p1000000000\n."),
    Bomb(b"\x80\x05\x96\xff\xff\xff\xff\x01\x00\x00\x00."),  # an array of bytes that is not there
    Bomb(b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."),  # nested
    Bomb(b"\x80\x02cnumpy\nndarray\n(J\xff\xff\xff\x7ftR."),
    Bomb(b"cos\nsystem\n(S'true'\ntR."),
    Bomb(b"\x80\x02cnumpy\ndtype\nU\x02f4\x85R(K\x03tb."),
    Bomb(b"ccollections\ndefaultdict\n(c__builtin__\nlist\ntR" + b"I0\n(lp1\n" + b"I1\na" * 300 + b"s"
         + b"".join(b"I%d\ng1\ns" % i for i in range(1, 3000)) + b"."),
    Bomb(b"L" + b"9" * 5000 + b"L\n."),
)  # fmt: skip


def old_pickle(value: Any) -> bytes:
    """As Python 2 wrote it: the names that numpy and scipy had then."""
    if isinstance(value, Bomb):
        return value.data
    data = pickle.dumps(value, protocol=draw_protocol(value))
    for new, old in (
        (b"numpy._core.multiarray", b"numpy.core.multiarray"),
        (b"scipy.sparse._csr", b"scipy.sparse.csr"),
        (b"cbuiltins\n", b"c__builtin__\n"),
    ):
        data = data.replace(new, old)
    return data


def draw_protocol(value: Any) -> int:
    return 3


def planetoid(draw: random.Random) -> dict[str, Any]:
    rng = np.random.default_rng(draw.randrange(2**32))
    known, tested, n, words = 5, [7, 5, 6], 9, 4
    classes = np.eye(3, dtype=np.int32)
    return {
        "allx": sp.csr_matrix(np.where(rng.random((known, words)) < 0.6, 1.0, 0.0).astype(np.float32)),
        "ally": classes[rng.integers(0, 3, known)],
        "tx": sp.csr_matrix(np.where(rng.random((3, words)) < 0.6, 2.0, 0.0).astype(np.float32)),
        "ty": classes[rng.integers(0, 3, 3)],
        "graph": defaultdict(list, {i: [int(rng.integers(0, n)) for _ in range(2)] for i in range(n)}),
        "test.index": [str(node) for node in tested],
    }


def change_array(draw: random.Random, content: dict[str, Any]) -> None:
    name = draw.choice(["ally", "ty"])
    array = np.array(content[name]) if isinstance(content[name], np.ndarray) else np.zeros((3, 3))
    ways = [
        lambda: array.astype(draw.choice(["f4", "f8", "?", "i1", "c8", "U3", "O", ">i4", "M8[s]", "f2", "S2"])),
        lambda: array[:-1],
        lambda: array[:, :-1],
        lambda: array.reshape(-1),
        lambda: np.concatenate([array, array], axis=1),
        lambda: np.asarray(array, np.int64) * draw.choice([2, -1, 0, 2**31]),
        lambda: array + draw.choice([1, 0.5, np.nan]),
        lambda: np.asfortranarray(array),
        lambda: array.tolist(),
    ]
    with np.errstate(all="ignore"):
        content[name] = draw.choice(ways)()


def change_matrix(draw: random.Random, content: dict[str, Any]) -> None:
    name = draw.choice(["allx", "tx"])
    matrix = content[name]
    if not isinstance(matrix, sp.csr_matrix):
        return
    matrix = copy.copy(matrix)  # not its own: that checks what was changed before
    part = draw.choice(["data", "indices", "indptr", "_shape"])
    if part == "_shape":
        matrix._shape = draw.choice(
            [(5, 10**9), (10**9, 4), (-5, 4), (5,), (True, 4), (5.0, 4), (3, 4), None, (5, 4, 1)]
        )
    else:
        array = getattr(matrix, part).copy()
        if array.size and draw.random() < 0.6:
            array[draw.randrange(array.size)] = draw.choice([-1, 0, 1, 2, 9, 2**31 - 1, 100])
        else:
            with np.errstate(all="ignore"):
                array = draw.choice(
                    [array[:-1], array.astype("f8"), array.astype("i8"), array.astype("c8"), array[None]]
                )
        setattr(matrix, part, array)
    content[name] = matrix


def change_graph(draw: random.Random, content: dict[str, Any]) -> None:
    graph = content["graph"]
    if not isinstance(graph, dict) or not graph:
        return
    key = draw.choice(list(graph))
    kind = draw.randrange(6)
    if kind == 0:
        graph[key] = draw.choice([[], [-1], [9], [10**30], [0.5], ["1"], [True], 3, None, "01", [[1]], [2**63], (1, 2)])
    elif kind == 1:
        graph[draw.choice([-1, 9, 10**12, 0.5, "3", None, True, 2**64])] = graph.pop(key)
    elif kind == 2:
        del graph[key]
    elif kind == 3:
        content["graph"] = draw.choice([dict(graph), list(graph.items()), list(graph), {}])
    elif kind == 4 and isinstance(graph[key], list):
        graph[key] = graph[key] * 2
    else:
        graph[len(graph)] = [0]


def change_lines(draw: random.Random, content: dict[str, Any]) -> None:
    lines = content["test.index"]
    i = draw.randrange(len(lines) + 1)
    kind = draw.randrange(3)
    if kind == 0 and lines:
        del lines[i % len(lines)]
    else:
        new = draw.choice(
            ["7", "0", "-1", "9", "8", "1_0", "٣", "1.0", "5 6", "", "#7", "9" * 5000, "nan", "\0", "2147483648"]
        )
        lines[i : i + kind - 1] = [new]


def change_file(draw: random.Random, content: dict[str, Any]) -> None:
    names = FILES[:-1]
    content[draw.choice(names)] = draw.choice(
        [content[draw.choice(names)], extreme(draw), draw.choice(BOMBS), draw.choice(BOMBS)]
    )


class Planetoid(Target):
    name = "planetoid"
    mutators = (
        change_array,
        change_array,
        change_matrix,
        change_matrix,
        change_graph,
        change_graph,
        change_lines,
        change_file,
    )

    def make(self, draw: random.Random) -> dict[str, Any]:
        return planetoid(draw)

    def write(self, content: dict[str, Any], folder: Path) -> list[Path]:
        paths = [folder / f"ind.x.{name}" for name in FILES]
        for path, name in zip(paths[:-1], FILES, strict=False):
            path.write_bytes(old_pickle(content[name]))
        paths[-1].write_text("".join(line + "\n" for line in content["test.index"]), encoding="utf-8")
        return paths

    def use(self, given: list[Path]) -> Graph:
        return read_planetoid(*given)

    def wrong(self, given: list[Path], content: Any, result: Graph) -> str | None:
        # What Python reads, of files that this process wrote; the names inside are those of today again.
        found = {name: _new_pickle(path) for name, path in zip(FILES, given[:-1], strict=False)}
        tested = [int(line) for line in given[-1].read_text().split()]
        graph = found["graph"]
        n = len(graph)
        if sorted(graph) != list(range(n)) or any(type(node) is not int for ends in graph.values() for node in ends):
            return "nodes that are none"
        if result.edge_index.T.tolist() != [[node, end] for node, ends in graph.items() for end in ends]:
            return "other edges"
        nodes = [*range(int(found["allx"].shape[0])), *tested]
        if len(set(nodes)) < len(nodes) or min(nodes) < 0 or max(nodes) >= n:
            return "test nodes twice or outside"
        x = np.zeros((n, int(found["allx"].shape[1])))
        rows = np.vstack([_dense(found[name]) for name in ("allx", "tx")])
        labels = np.vstack([found["ally"], found["ty"]])
        if len(rows) != len(nodes) or len(labels) != len(nodes):
            return "another number of rows"
        x[nodes] = rows
        if not np.allclose(x, result.x.toarray()):  # type: ignore[union-attr]
            return "other features"
        if not set(np.unique(labels).tolist()) <= {0, 1} or (labels.sum(axis=1) > 1).any():
            return "labels that are not one of all"
        y = np.full(n, -1)
        y[nodes] = [row.argmax() if row.any() else -1 for row in labels]
        return None if y.tolist() == result.y.tolist() and labels.shape[1] == result.num_classes else "other labels"


def _dense(matrix: Any) -> Any:
    parts = {f"m_{part}": np.asarray(getattr(matrix, part)) for part in ("data", "indices", "indptr", "shape")}
    table, problem = sparse_table(parts, "m")
    return np.full([int(size) for size in matrix.shape], np.nan) if problem else table


def _new_pickle(path: Path) -> Any:
    data = path.read_bytes().replace(b"numpy.core.multiarray", b"numpy._core.multiarray")
    data = data.replace(b"scipy.sparse.csr", b"scipy.sparse._csr").replace(b"c__builtin__\n", b"cbuiltins\n")
    return pickle.loads(data, encoding="latin1")  # the program accepted it, so it names nothing else


def rows(draw: random.Random, content: dict[str, Any]) -> list[list[str]]:
    found: list[list[str]] = content[draw.choice([key for key, value in content.items() if isinstance(value, list)])]
    return found


def change_cell(draw: random.Random, content: dict[str, Any]) -> None:
    chosen = [row for row in rows(draw, content) if row]
    if chosen:
        row = draw.choice(chosen)
        row[draw.randrange(len(row))] = draw.choice([*TEXTS[:-1], *map(str, NUMBERS), draw.choice(draw.choice(chosen))])


def change_rows(draw: random.Random, content: dict[str, Any]) -> None:
    table = rows(draw, content)
    if table:
        i = draw.randrange(len(table))
        ways = [lambda: table.pop(i), lambda: table.append(list(table[i])), lambda: table[i].append("1"), table.clear]
        draw.choice([*ways, lambda: table[i].pop() if table[i] else None, lambda: table.insert(i, [])])()


class Linqs(Target):
    name = "linqs"
    mutators = (change_cell, change_cell, change_rows)

    def make(self, draw: random.Random) -> dict[str, Any]:
        content = [[f"p{i}", *(draw.choice("01") for _ in range(4)), "abc"[i % 3]] for i in range(6)]
        return {"content": content, "cites": [[f"p{i}", f"p{i + 1}"] for i in range(5)]}

    def write(self, content: dict[str, Any], folder: Path) -> list[Path]:
        paths = [folder / "cora.content", folder / "cora.cites"]
        for path, table in zip(paths, content.values(), strict=True):
            path.write_text("".join("\t".join(row) + "\n" for row in table), encoding="utf-8")
        return paths

    def use(self, given: list[Path]) -> Graph:
        return read_linqs(*given)

    def wrong(self, given: list[Path], content: Any, result: Graph) -> str | None:
        papers, cites = ([line.split("\t") for line in path.read_text("utf-8").split("\n") if line] for path in given)
        ids = [row[0] for row in papers]
        if len({len(row) for row in papers}) != 1 or len(set(ids)) < len(ids):
            return "papers twice, or rows of unequal length"
        x = [[float(value) for value in row[1:-1]] for row in papers]
        if result.x.toarray().tolist() != x:  # type: ignore[union-attr]
            return "other features"
        classes = sorted({row[-1] for row in papers})
        if [classes[k] for k in result.y.tolist()] != [row[-1] for row in papers]:
            return "other labels"
        edges = [[ids[a], ids[b]] for a, b in result.edge_index.T.tolist()]
        return None if edges == cites else "other edges"


class Ogb(Target):
    name = "ogb"
    mutators = (change_cell, change_cell, change_rows)

    def make(self, draw: random.Random) -> dict[str, Any]:
        return {
            "edge": [["0", "1"], ["2", "1"], ["3", "0"], ["1", "0"]],
            "node-feat": [[f"{draw.uniform(-1, 1):.3f}" for _ in range(2)] for _ in range(4)],
            "node-label": [["1"], ["0"], ["2"], ["1"]],
            "num-node-list": [["4"]],
            "num-edge-list": [["4"]],
        }

    def write(self, content: dict[str, Any], folder: Path) -> Path:
        path = folder / "arxiv.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name, table in content.items():
                text = "".join(",".join(row) + "\n" for row in table)
                archive.writestr(f"arxiv/raw/{name}.csv.gz", gzip.compress(text.encode()))
        return path

    def use(self, given: Path) -> Graph:
        return read_ogb(given)

    def wrong(self, given: Path, content: Any, result: Graph) -> str | None:
        with zipfile.ZipFile(given) as archive:
            tables = {}
            for name in content:
                text = gzip.decompress(archive.read(f"arxiv/raw/{name}.csv.gz")).decode()
                tables[name] = [line.split(",") for line in text.split("\n") if line.strip()]
        if result.edge_index.T.tolist() != [[int(a), int(b)] for a, b in tables["edge"]]:
            return "other edges"
        x = [[float(value) for value in row] for row in tables["node-feat"]]
        if not np.allclose(result.x, np.array(x), atol=1e-37):
            return "other features"
        if [[label] for label in result.y.tolist()] != [[int(value) for value in row] for row in tables["node-label"]]:
            return "other labels"
        if tables["num-node-list"] != [[str(len(x))]] or tables["num-edge-list"] != [[str(len(tables["edge"]))]]:
            return "other numbers than stated"
        return None
