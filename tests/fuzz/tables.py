"""Graphs as ``nodes.csv`` and ``edges.csv``."""

from __future__ import annotations

import csv
import io
import random
import re
from pathlib import Path
from typing import Any

import numpy as np

from fedgkd.data.graph import Graph
from fedgkd.data.own import read_graph
from tests.fuzz.core import Target, command
from tests.fuzz.values import TEXTS

NUMBERS = (
    "1_000", "٣", "１", "−1", "1,5", "1 000", "0x1p3", "1e5", "1E-3", "+2", ".5", "5.", "-0", "1e300", "-1e39",
    "1e-300", "nan", "NaN", "inf", "-Infinity", "1e", "e5", "--1", "1d5",
    "1" * 5000, "0." + "0" * 4000 + "1", "", " ", "True", "1\xa0",
    "1j", "#N/A", "1;2", "½", "1/2", "$1", "1%", "'1'",
)  # fmt: skip
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def plain_tables(draw: random.Random) -> dict[str, Any]:
    n, classes = 6, ("cat", "dog", "eel")
    ids = [f"n{i}" for i in range(n)] if draw.random() < 0.7 else [str(i * 7) for i in range(n)]
    labels = [classes[i % 3] for i in range(n)]
    nodes = [[ids[i], f"{draw.uniform(-2, 2):.3f}", str(draw.randrange(9)), labels[i]] for i in range(n)]
    edges = [[ids[i], ids[i + 1]] for i in range(n - 1)]
    return {
        "nodes.csv": [["id", "f", "g", "label"], *nodes],
        "edges.csv": [["source", "target"], *edges],
        "newline": draw.choice(["\n"] * 4 + ["\r\n", "\r"]),
        "encoding": "utf-8" if draw.random() < 0.9 else "utf-8-sig",
        "delimiter": ",",
        "quotes": draw.random() < 0.2,
        "raw": [],
    }


def table(draw: random.Random, content: dict[str, Any]) -> list[list[str]]:
    rows: list[list[str]] = content.get(draw.choice(["nodes.csv", "nodes.csv", "edges.csv"]), [])
    return rows


def change_number(draw: random.Random, content: dict[str, Any]) -> None:
    rows = content.get("nodes.csv", [])
    if len(rows) > 1 and len(rows[0]) > 2:
        row = draw.choice(rows[1:])
        if len(row) > 2:
            row[draw.choice([1, 2])] = draw.choice(NUMBERS)


def change_cell(draw: random.Random, content: dict[str, Any]) -> None:
    rows = [row for row in table(draw, content) if row]
    if rows:
        row = draw.choice(rows)
        i = draw.randrange(len(row))
        other = draw.choice(draw.choice(rows))
        near = [
            row[i] + " ",
            row[i].upper(),
            row[i] + "\n",
            other,
            f'"{row[i]}',
            row[i] + "\0",
            "\ufeff" + row[i],
            "id",
        ]
        row[i] = draw.choice([draw.choice(TEXTS[:-1]), draw.choice(near), draw.choice(NUMBERS)])


def change_header(draw: random.Random, content: dict[str, Any]) -> None:
    rows = table(draw, content)
    if rows and rows[0]:
        i = draw.randrange(len(rows[0]))
        rows[0][i] = draw.choice(["label", "id", "f", "", "n0", "0", "LABEL", "Label ", "x" * 300, "a\nb", "2"])


def ragged(draw: random.Random, content: dict[str, Any]) -> None:
    rows = [row for row in table(draw, content) if row]
    if rows:
        row = draw.choice(rows)
        draw.choice([lambda: row.pop(), lambda: row.append("1"), lambda: row.insert(0, "1"), row.clear])()


def change_rows(draw: random.Random, content: dict[str, Any]) -> None:
    rows = table(draw, content)
    if not rows:
        return
    i = draw.randrange(len(rows))
    kind = draw.randrange(6)
    if kind == 0:
        del rows[i]
    elif kind == 1:
        rows.insert(draw.randrange(len(rows)), list(rows[i]))
    elif kind == 2:
        rows[i] = rows[i][::-1]
    elif kind == 3:
        del rows[1:]
    elif kind == 4:
        del rows[0]
    else:
        rows[:] = rows[::-1]


def change_columns(draw: random.Random, content: dict[str, Any]) -> None:
    rows = table(draw, content)
    width = min(map(len, rows), default=0)
    if not width:
        return
    a, b, kind = draw.randrange(width), draw.randrange(width), draw.randrange(5)
    for number, row in enumerate(rows):
        if kind == 0:
            del row[a]
        elif kind == 1:
            row.append(row[a])
        elif kind == 2:
            row[a], row[b] = row[b], row[a]
        elif kind == 3:
            row.append("" if number else "more")
        else:
            row.insert(b, "5" if number else "new")


def widen(draw: random.Random, content: dict[str, Any]) -> None:
    """As many columns as take long to compare with each other."""
    rows = content.get("nodes.csv", [])
    for number, row in enumerate(rows if len(rows) < 20 and all(len(row) < 20 for row in rows) else []):
        row.extend(str(i) if number else f"c{i}" for i in range(60_000))


def lengthen(draw: random.Random, content: dict[str, Any]) -> None:
    rows = table(draw, content)
    if len(rows) > 1 and len(rows[-1]) < 20:
        kind = draw.randrange(2)
        rows += [[f"m{i}" if kind and j == 0 else value for j, value in enumerate(rows[-1])] for i in range(5000)]


def change_labels(draw: random.Random, content: dict[str, Any]) -> None:
    rows = content.get("nodes.csv", [])
    value = draw.choice(["", "same", "9" * 5000, "١٢", "0", "-1", "1.0", None, "x\ty", "é"])
    for i, row in enumerate(rows[1:]):
        if row:
            row[-1] = f"{i}" if value is None else value if draw.random() < 0.6 else row[-1]


def change_format(draw: random.Random, content: dict[str, Any]) -> None:
    key = draw.choice(["newline", "encoding", "delimiter", "quotes"])
    content[key] = draw.choice(
        {
            "newline": ["\n", "\r\n", "\r", "\n\r", "\n\n", "\v", "\u2028", "\x85"],
            "encoding": ["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "utf-7", "cp500"],
            "delimiter": [";", "\t", "|", " ", ",,", ", "],
            "quotes": [True, False],
        }[key]
    )


def change_text(draw: random.Random, content: dict[str, Any]) -> None:
    """What the text of a file gets besides its rows: where (0 before, 1 after, 2 between), and what."""
    pieces = [
        "\ufeff",
        "\0",
        "\n\n",
        "   \n",
        "\x1a",
        '"',
        "# a comment\n",
        "sep=,\n",
        "\x0c",
        ",,,\n",
        "\r",
        "\x1b[2J",
    ]
    content["raw"].append((draw.choice(["nodes.csv", "edges.csv"]), draw.randrange(3), draw.choice(pieces)))


def drop_file(draw: random.Random, content: dict[str, Any]) -> None:
    content.pop(draw.choice(["nodes.csv", "edges.csv"]), None)


MUTATORS = (
    change_number, change_number, change_number, change_cell, change_cell, change_cell, change_header, ragged,
    change_rows, change_rows, change_columns, change_labels, change_format, change_text, lengthen,
)  # fmt: skip
RARE = (widen, drop_file)


def rare(draw: random.Random, content: dict[str, Any]) -> None:
    draw.choice(RARE)(draw, content)


def write_tables(folder: Path, content: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    for name in ("nodes.csv", "edges.csv"):
        if name not in content:
            continue
        lines = [
            content["delimiter"].join(_cell(cell, content["quotes"], content["delimiter"]) for cell in row)
            for row in content[name]
        ]
        for where, place, piece in content["raw"]:
            if where == name:
                lines.insert([0, len(lines), len(lines) // 2][place], piece.rstrip("\n"))
        text = "".join(line + content["newline"] for line in lines)
        (folder / name).write_bytes(text.encode(content["encoding"], errors="replace"))


def _cell(cell: str, quotes: bool, delimiter: str) -> str:
    if quotes or (delimiter in cell and len(cell) < 50) or "\n" in cell:
        return '"' + cell.replace('"', '""') + '"'
    return cell


class TablesTarget(Target):
    """``fedgkd data show FOLDER`` of a folder with the two tables."""

    name = "tables"
    mutators = (*MUTATORS, *MUTATORS, rare)

    def make(self, draw: random.Random) -> dict[str, Any]:
        return plain_tables(draw)

    def write(self, content: dict[str, Any], folder: Path) -> Path:
        write_tables(folder / "g", content)
        return folder / "g"

    def use(self, given: Path) -> Graph:
        graph = read_graph(given)
        command("data", "show", str(given), "--json")
        return graph

    def wrong(self, given: Path, content: Any, result: Graph) -> str | None:
        return misread_tables(result, given)


def rows_of(path: Path) -> list[list[str]] | str:
    """The rows, or why the file is no table; a reading of its own."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        return "not UTF-8"
    if re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", text):
        return "control characters"
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    try:
        rows = [[cell.strip() for cell in row] for row in reader if row]
    except csv.Error as problem:
        return str(problem)
    return rows if len({len(row) for row in rows}) == 1 else "rows of unequal length"


def misread_tables(graph: Graph, folder: Path, class_names: list[str] | None = None) -> str | None:
    """How ``graph`` differs from what the files mean."""
    nodes, edges = rows_of(folder / "nodes.csv"), rows_of(folder / "edges.csv")
    if isinstance(nodes, str) or isinstance(edges, str):
        return f"a file that is no table: {nodes if isinstance(nodes, str) else edges}"
    header, *nodes = nodes
    if len(set(header)) < len(header) or "label" not in header[1:] or "" in header[1:]:
        return "a header with a name twice, an empty one, or without label"
    place = header.index("label")
    features = [i for i in range(1, len(header)) if i != place]
    ids = [row[0] for row in nodes]
    if len(set(ids)) < len(ids) or "" in ids or list(graph.node_names or ()) != ids:
        return "other nodes"
    if any(not _NUMBER.fullmatch(row[i]) for row in nodes for i in features):
        return "a feature that is no number"
    x = np.array([[float(row[i]) for i in features] for row in nodes])
    if x.shape != graph.x.shape or not np.allclose(graph.x, x, rtol=1e-5, atol=1e-37):
        return "other features"
    if not np.isfinite(graph.x).all() or list(graph.feature_names or ()) != [header[i] for i in features]:
        return "features that are not finite, or other names"
    names = list(graph.class_names or ())
    if (
        set(names) != (set(class_names or ()) or {row[place] for row in nodes if row[place]})
        or len(names) != graph.num_classes
    ):
        return "other classes"
    if [names[k] if k >= 0 else "" for k in graph.y.tolist()] != [row[place] for row in nodes]:
        return "other labels"
    head, *edges = edges
    if set(head[:2]) & set(ids):
        return "the header of the edges names a node"
    pairs = {(row[0], row[1]) for row in edges}
    expected = pairs | {(b, a) for a, b in pairs}
    found = [(ids[a], ids[b]) for a, b in graph.edge_index.T.tolist()]
    return None if set(found) == expected and len(found) == len(expected) else "other edges"
