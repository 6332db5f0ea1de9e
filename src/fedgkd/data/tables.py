"""A graph as two tables: a folder with ``nodes.csv`` and ``edges.csv``.

``nodes.csv``
    A header, then one row per node. The first column is the node's id (any text or number), one column is its
    label (empty: not known), all others are features and hold numbers.
``edges.csv``
    A header, then one row per edge. The first two columns are the ids of its ends; others are ignored.

Errors name the file and the row as an editor counts it: the header is row 1.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from fedgkd.data.files import open_file
from fedgkd.data.graph import UNLABELLED, Graph, undirected
from fedgkd.errors import DataError, quoted

NODES, EDGES = "nodes.csv", "edges.csv"

_CELLS_AT_A_TIME = 2**18  # text takes far more memory than the numbers it becomes

# No text holds these but by mistake: a file in UTF-16, or a damaged one; tabs and line breaks are no harm.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

_UNKNOWN = -2  # neither a number nor UNLABELLED

Row = tuple[int, list[str]]
"""A row's number in the file, and its fields."""


@dataclass(frozen=True, eq=False)
class Tables:
    """What the two files say, before the classes are numbered.

    Args:
        folder: Where the files are.
        x: Features, one row per node.
        feature_names: Their columns.
        node_ids: The nodes' ids, in the order of the file.
        labels: The nodes' labels as text, empty where not known; None where there is no label column.
        rows: The row of each node in ``nodes.csv``.
        edge_index: The edges, by position in ``node_ids``.
    """

    folder: Path
    x: NDArray[np.float32]
    feature_names: tuple[str, ...]
    node_ids: list[str]
    labels: list[str] | None
    rows: list[int]
    edge_index: NDArray[np.int64]

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes that occur, in natural order."""
        return tuple(sorted({label for label in self.labels or () if label}, key=natural_key))

    def to_graph(self, class_names: Sequence[str] | None = None, num_classes: int | None = None) -> Graph:
        """The graph, with classes numbered as in ``class_names`` (by default those that occur).

        ``num_classes`` serves where neither names nor labels tell how many there are.
        """
        names = tuple(class_names) if class_names is not None else self.class_names
        if not names and num_classes is None:
            raise DataError(f"{self.folder / NODES}: no node has a label, so the classes must be given")
        return Graph(
            x=self.x,
            edge_index=self.edge_index,
            y=self._class_numbers(names),
            num_classes=len(names) if names else num_classes or 0,
            feature_names=self.feature_names,
            class_names=names or None,
            node_names=tuple(self.node_ids),
            name=str(self.folder),
        )

    def _class_numbers(self, names: tuple[str, ...]) -> NDArray[np.int64]:
        if self.labels is None:
            return np.full(len(self.node_ids), UNLABELLED, np.int64)
        number = {name: i for i, name in enumerate(names)} | {"": UNLABELLED}
        y = _look_up(number, self.labels)
        unknown = y == _UNKNOWN
        if unknown.any():
            node = int(unknown.argmax())
            raise DataError(
                f"{self.folder / NODES}, row {self.rows[node]}: label {quoted(self.labels[node])} "
                f"is none of the classes {', '.join(names)}"
            )
        return y


def read_tables(
    folder: Path, *, label: str | int = "label", labels_required: bool = True, directed: bool = False
) -> Tables:
    """Read ``nodes.csv`` and ``edges.csv`` of ``folder``.

    Args:
        folder: The folder.
        label: The label column: its name, or its number counted from 1.
        labels_required: If False, the label column may be missing.
        directed: If False, every edge is stored in both directions.

    Raises:
        DataError: If a file is missing or a row is not usable; the message names file, row and column.
    """
    path = folder / NODES
    header, rows = _open(path)
    columns = _Columns.find(path, header, str(label), labels_required)
    ids: list[str] = []
    labels: list[str] = []
    numbers: list[int] = []
    blocks: list[NDArray[np.float32]] = []
    rows_at_a_time = max(1, _CELLS_AT_A_TIME // len(header))
    while block := list(islice(rows, rows_at_a_time)):
        blocks.append(_features(path, header, columns.features, block))
        numbers += [number for number, _ in block]
        ids += [fields[0] for _, fields in block]
        if columns.label is not None:
            labels += [fields[columns.label] for _, fields in block]
    if not ids:
        raise DataError(f"{path}: the graph is empty (a header, but no nodes)")
    _check_ids(path, ids, numbers)
    edge_index = _read_edges(folder / EDGES, {name: i for i, name in enumerate(ids)})
    return Tables(
        folder=folder,
        x=np.concatenate(blocks),
        feature_names=tuple(header[column] for column in columns.features),
        node_ids=ids,
        labels=None if columns.label is None else labels,
        rows=numbers,
        edge_index=edge_index if directed else undirected(edge_index, len(ids)),
    )


def natural_key(name: str) -> tuple[list[str | tuple[int, str]], str]:
    """Sorts ``client-2`` before ``client-10``."""
    parts = re.split(r"([0-9]+)", name)
    return [_by_size(part) if i % 2 else part for i, part in enumerate(parts)], name


def _by_size(digits: str) -> tuple[int, str]:
    """Sorts numbers that may have more digits than Python converts."""
    significant = digits.lstrip("0")
    return len(significant), significant


def _rows(path: Path) -> Iterator[Row]:
    """The rows that are not blank, stripped of white space, each with its number; all as long as the header."""
    expected = None
    with (
        open_file(path, f"; a graph in tables needs {NODES} and {EDGES}") as content,
        io.TextIOWrapper(content, encoding="utf-8-sig", newline="") as stream,
    ):
        reader = csv.reader(_lines(path, stream), strict=True, skipinitialspace=True)
        try:
            for fields in reader:
                if not fields:
                    continue
                expected = expected or len(fields)
                if len(fields) != expected:
                    raise DataError(
                        f"{path}, row {reader.line_num}: {len(fields)} fields, but the header has {expected}"
                    )
                yield reader.line_num, [field.strip() for field in fields]
        except OSError as problem:
            raise DataError(f"{path}: cannot be read ({problem.strerror or problem})") from problem
        except UnicodeDecodeError as problem:
            raise DataError(f"{path}: not text in UTF-8 (byte {problem.start})") from problem
        except csv.Error as problem:
            raise DataError(f"{path}, row {reader.line_num}: {problem}") from problem


def _lines(path: Path, stream: TextIO) -> Iterator[str]:
    for number, line in enumerate(stream, start=1):
        if found := _CONTROL.search(line):
            raise DataError(f"{path}, row {number}: holds the control character {found[0]!r}; save it as text in UTF-8")
        yield line


def _open(path: Path) -> tuple[list[str], Iterator[Row]]:
    """The header, and the rows below it."""
    rows = _rows(path)
    first = next(rows, None)
    if first is None:
        raise DataError(f"{path}: the file is empty; it needs a header row")
    return first[1], rows


class _Columns(NamedTuple):
    """Where the label and the features stand in ``nodes.csv``."""

    label: int | None
    features: list[int]

    @classmethod
    def find(cls, path: Path, header: list[str], label: str, label_required: bool) -> _Columns:
        (name, times), *_ = Counter(header).most_common(1)
        if times > 1:
            raise DataError(f"{path}: two columns of the header are called {quoted(name)}")
        found = _label_column(header, label)
        if found == 0:
            raise DataError(f"{path}: the first column holds the node ids and cannot hold the labels too")
        if found is None and label_required:
            raise DataError(f"{path}: no label column {quoted(label)}; the columns are {', '.join(header)}")
        features = [column for column in range(1, len(header)) if column != found]
        if not features:
            raise DataError(f"{path}: no feature columns beside id and label (fields are separated by commas)")
        return cls(found, features)


def _label_column(header: list[str], label: str) -> int | None:
    if label in header:
        return header.index(label)
    numbers = {str(number): number - 1 for number in range(1, len(header) + 1)}
    return numbers.get(label)


def _features(path: Path, header: list[str], columns: list[int], rows: list[Row]) -> NDArray[np.float32]:
    cells = [fields[column] for _, fields in rows for column in columns]
    with np.errstate(over="ignore"):
        block = np.fromiter(map(_number, cells), np.float64, len(cells)).astype(np.float32)
    bad = ~np.isfinite(block)
    if bad.any():
        cell = int(bad.argmax())
        row, column = divmod(cell, len(columns))
        raise DataError(
            f"{path}, row {rows[row][0]}: column {quoted(header[columns[column]])} holds {quoted(cells[cell])}, "
            "which is not a finite number"
        )
    return block.reshape(len(rows), len(columns))


def _number(text: str) -> float:
    if "_" in text or not text.isascii():  # Python takes 1_000 and the digits of every alphabet for numbers
        return float("nan")
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _check_ids(path: Path, ids: list[str], rows: list[int]) -> None:
    first: dict[str, int] = {}
    for name, row in zip(ids, rows, strict=True):
        if not name:
            raise DataError(f"{path}, row {row}: the node has no id (the first column is empty)")
        if first.setdefault(name, row) != row:
            raise DataError(f"{path}, row {row}: node id {quoted(name)} stands already in row {first[name]}")


def _read_edges(path: Path, position: dict[str, int]) -> NDArray[np.int64]:
    header, rows = _open(path)
    if len(header) < 2:
        raise DataError(f"{path}: two columns are needed, source and target, separated by a comma")
    if header[0] in position or header[1] in position:
        raise DataError(f"{path}: the first row is an edge, not a header; put a row such as 'source,target' above it")
    blocks = [np.empty((2, 0), np.int64)]
    while block := list(islice(rows, max(1, _CELLS_AT_A_TIME // len(header)))):
        ends = np.stack([_look_up(position, (fields[end] for _, fields in block)) for end in (0, 1)])
        unknown = ends == _UNKNOWN
        if unknown.any():
            edge, end = np.argwhere(unknown.T)[0]
            number, fields = block[edge]
            raise DataError(
                f"{path}, row {number}: column {quoted(header[end])} names node {quoted(fields[end])}, "
                f"which is not in {NODES}"
            )
        blocks.append(ends)
    return np.concatenate(blocks, axis=1)


def _look_up(numbers: dict[str, int], names: Iterable[str]) -> NDArray[np.int64]:
    return np.fromiter(map(numbers.get, names, repeat(_UNKNOWN)), np.int64)
