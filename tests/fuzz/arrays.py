"""Graphs in ``.npz`` files: our own keys, compressed sparse rows, and those of gnn-benchmark."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedgkd.data.graph import Graph
from fedgkd.data.npz import load_graph, load_node_ids
from tests.fuzz.core import Target, command

PARTS = ("data", "indices", "indptr", "shape")
OURS = {"x", *(f"x_{part}" for part in PARTS), "edge_index", "y"}
BENCHMARK = {*(f"{m}_{part}" for m in ("adj", "attr") for part in PARTS), "labels"}

Arrays = dict[str, Any]  # an array, or the bytes of a member as they are

DTYPES = (
    "?", "i1", "u1", "i2", "i4", "i8", "u8", "f2", "f4", "f8", "g", "c8", "c16", "U5", "S5", "U0", "V8", "O",
    "M8[s]", "m8[s]", "M8[D]", ">i8", ">f4", [("a", "i8"), ("b", "f4")],
)  # fmt: skip
EXTREMES = (
    0, -1, -2, 1, 2, 7, 127, 255, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1,
    0.5, -0.0, 1e-320, 1e38, 3.5e38, 1.7e308, float("nan"), float("inf"), -float("inf"),
    1j, True, "x", "", "1", "1_0", b"a", None, "x" * 300, "a\nb",
)  # fmt: skip


def plain_arrays(draw: random.Random) -> Arrays:
    """A graph of six nodes in three classes, with whatever is optional now and then."""
    rng = np.random.default_rng(draw.randrange(2**32))
    n, features = 6, 4
    y = rng.permutation(np.arange(n) % 3)
    edges = np.array([[0, 1, 1, 2, 2, 3, 3, 4, 4, 5], [1, 0, 2, 1, 3, 2, 4, 3, 5, 4]])
    arrays: Arrays = {"x": rng.normal(size=(n, features)).astype(np.float32), "edge_index": edges, "y": y}
    if draw.random() < 0.4:
        arrays |= _csr("x", np.where(rng.random((n, features)) < 0.5, arrays.pop("x"), 0))
    if draw.random() < 0.5:
        arrays |= {f"{name}_mask": np.arange(n) % 3 == i for i, name in enumerate(("train", "val", "test"))}
    if draw.random() < 0.5:
        arrays["num_classes"] = np.int64(3)
    if draw.random() < 0.4:
        arrays["class_names"] = np.array(["a", "b", "c"])
    if draw.random() < 0.4:
        arrays["feature_names"] = np.array(list("fghi"))
    if draw.random() < 0.3:
        arrays["node_names"] = np.array([f"n{i}" for i in range(n)])
    if draw.random() < 0.3:
        arrays["node_ids"] = np.arange(n) * 2
    return arrays


def benchmark_arrays(draw: random.Random) -> Arrays:
    rng = np.random.default_rng(draw.randrange(2**32))
    n = 6
    adjacency = (rng.random((n, n)) < 0.4).astype(np.float32)
    attributes = np.where(rng.random((n, 4)) < 0.6, 1.0, 0.0).astype(np.float32)
    return _csr("adj", adjacency) | _csr("attr", attributes) | {"labels": rng.permutation(np.arange(n) % 3)}


def _csr(prefix: str, matrix: Any) -> Arrays:
    rows, columns = np.nonzero(matrix)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(matrix)))])
    parts = {"data": matrix[rows, columns], "indices": columns, "indptr": indptr, "shape": np.array(matrix.shape)}
    return {f"{prefix}_{part}": array for part, array in parts.items()}


def one(draw: random.Random, arrays: Arrays) -> str | None:
    keys = [key for key, value in arrays.items() if isinstance(value, np.ndarray | np.generic)]
    return draw.choice(keys) if keys else None


def change_dtype(draw: random.Random, arrays: Arrays) -> None:
    key = one(draw, arrays)
    if key is None:
        return
    dtype: Any = draw.choice(DTYPES)
    with np.errstate(all="ignore"):
        try:
            arrays[key] = np.asarray(arrays[key]).astype(dtype)
        except (ValueError, TypeError, OverflowError):
            arrays[key] = np.zeros(np.shape(arrays[key]), dtype)


def change_value(draw: random.Random, arrays: Arrays) -> None:
    key = one(draw, arrays)
    if key is None:
        return
    value: Any = draw.choice(EXTREMES)
    array = np.array(arrays[key])
    kind = np.asarray(value).dtype
    if not kind.hasobject and not array.dtype.hasobject and draw.random() < 0.7:
        try:
            array = array.astype(np.result_type(array.dtype, kind))
        except TypeError:
            array = array.astype("U20") if draw.random() < 0.5 else array
    if not array.size:
        return
    with np.errstate(all="ignore"):
        try:
            array.reshape(-1)[draw.randrange(array.size)] = value
        except (ValueError, TypeError, OverflowError):
            array = np.array(value)
    arrays[key] = array


def fill(draw: random.Random, arrays: Arrays) -> None:
    key = one(draw, arrays)
    if key is not None:
        value = draw.choice(EXTREMES)
        arrays[key] = np.full(np.shape(arrays[key]), value, dtype=np.asarray(value).dtype)


def change_shape(draw: random.Random, arrays: Arrays) -> None:
    key = one(draw, arrays)
    if key is None:
        return
    array = np.asarray(arrays[key])
    ways: list[Callable[[], Any]] = [
        lambda: array.T,
        lambda: array.reshape(-1),
        lambda: array[None],
        lambda: array[..., None],
        lambda: array[:-1],
        lambda: array[1:],
        lambda: np.concatenate([array, array]),
        lambda: array[:0],
        lambda: array[:, :0],
        lambda: array[:, :1],
        lambda: array.reshape(-1)[0],
        lambda: np.asfortranarray(array),
        lambda: np.repeat(array, 2, axis=-1),
        lambda: array[::-1],
    ]
    try:
        arrays[key] = draw.choice(ways)()
    except (IndexError, ValueError):
        arrays[key] = np.array(0)


def drop_key(draw: random.Random, arrays: Arrays) -> None:
    if arrays:
        del arrays[draw.choice(list(arrays))]


def rename_key(draw: random.Random, arrays: Arrays) -> None:
    if arrays:
        key = draw.choice(list(arrays))
        value = arrays.pop(key)
        arrays[draw.choice([*arrays, "y", "x", "labels", key.upper(), f"{key}s", "", "x" * 300, "../x", "a\nb"])] = (
            value
        )


def add_key(draw: random.Random, arrays: Arrays) -> None:
    donor = draw.choice([plain_arrays, benchmark_arrays])(draw)
    key = draw.choice(list(donor))
    arrays[key] = donor[key]


def swap_values(draw: random.Random, arrays: Arrays) -> None:
    if len(arrays) > 1:
        a, b = draw.sample(list(arrays), 2)
        arrays[a], arrays[b] = arrays[b], arrays[a]


def change_header(draw: random.Random, arrays: Arrays) -> None:
    """The header of a member says what its content is not."""
    key = one(draw, arrays)
    if key is None:
        return
    array = np.asarray(arrays[key])
    if array.dtype.hasobject:
        return
    shape = draw.choice(
        [
            "True",
            "(True,)",
            "(-1,)",
            "(10**9,)",
            "(1000000000000,)",
            "(3, 1000000000)",
            "()",
            "(2.0,)",
            "None",
            "((1,),)",
        ]
        + ["(0,)", "(9223372036854775808,)", f"({'1' * 5000},)", f"({array.size},)", f"({array.size + 1},)"]
        + [repr(array.shape)] * 3
    )
    descr = draw.choice(
        ["'<i8'", "'<f8'", "'|O'", "'<U1000000000'", "'<U0'", "'|V0'", "'|b1'", "'<c16'", "'<M8[ns]'", "'zz'", "5"]
        + ["[('a', '<i8', (1000000000,))]", "[('a', [('b', '<f8')])]", "(" * 200, "None", "'<f16'", "'>i8'"]
        + [repr(array.dtype.str)] * 4
    )
    order = draw.choice(["False", "True", "1", "'x'"])
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"
    text = draw.choice([text] * 8 + [text[:-3], text * 2, "{}", "[" * 3000, "__import__('os')", text + " " * 70_000])
    header = text.encode() + b"\n"
    version = draw.choice([b"\x01\x00"] * 5 + [b"\x02\x00", b"\x03\x00", b"\x09\x00", b"\x00\x00"])
    length = len(header).to_bytes(2 if version == b"\x01\x00" else 4, "little") if len(header) < 65536 else b"\xff\xff"
    arrays[key] = b"\x93NUMPY" + version + length + header + array.tobytes()


def make_huge(draw: random.Random, arrays: Arrays) -> None:
    """A small file that unfolds to gigabytes, as it says itself."""
    key = one(draw, arrays)
    if key is not None:
        arrays[key] = Huge(draw.choice(["<f4", "<f8", "|i1", "<i8", "|b1", "<U4"]), draw.choice([1, 3]) * 2**30)


def stretch(draw: random.Random, arrays: Arrays) -> None:
    """Sparse features whose sizes say more than they hold."""
    for key in ("x_shape", "adj_shape", "attr_shape"):
        if isinstance(arrays.get(key), np.ndarray) and arrays[key].shape == (2,) and arrays[key].dtype.kind in "iuf":
            sizes = [float("inf"), 10**6, 10**9, 2**31, 2**62, -1, 0, 1e300, float("nan"), 3.5]
            index = draw.randrange(2)
            arrays[key] = np.array([draw.choice(sizes) if i == index else size for i, size in enumerate(arrays[key])])


class Huge:
    """Zeros that a zip file packs well."""

    def __init__(self, dtype: str, size: int) -> None:
        self.dtype, self.size = np.dtype(dtype), size

    def write_to(self, archive: zipfile.ZipFile, name: str) -> None:
        info = zipfile.ZipInfo(name)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.file_size = self.size
        count = self.size // self.dtype.itemsize
        shape = f"({count // 4}, 4)" if count % 4 == 0 else f"({count},)"
        text = (
            f"{{'descr': '{self.dtype.str}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
        )
        with archive.open(info, "w", force_zip64=True) as stream:
            stream.write(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
            zeros = bytes(2**22)
            for _ in range(self.size // len(zeros)):
                stream.write(zeros)


MUTATORS = (
    change_dtype, change_dtype, change_value, change_value, change_value, fill, change_shape, change_shape, drop_key,
    rename_key, add_key, swap_values, change_header, change_header, stretch,
)  # fmt: skip


def write_npz(path: Path, arrays: Arrays, draw: random.Random | None = None) -> None:
    """As ``np.savez`` does it, and with bytes as they are."""
    with zipfile.ZipFile(path, "w") as archive:
        for key, value in arrays.items():
            name = f"{key}.npy"
            if isinstance(value, Huge):
                value.write_to(archive, name)
                continue
            data = value
            if not isinstance(value, bytes):
                stream = io.BytesIO()
                np.lib.format.write_array(stream, np.asanyarray(value), allow_pickle=True)
                data = stream.getvalue()
            archive.writestr(name, data)


class Npz(Target):
    """``fedgkd data show FILE``, and the graph as the library reads it."""

    name = "npz"
    mutators = MUTATORS

    def make(self, draw: random.Random) -> Arrays:
        return plain_arrays(draw) if draw.random() < 0.7 else benchmark_arrays(draw)

    def write(self, content: Arrays, folder: Path) -> Path:
        path = folder / "graph.npz"
        write_npz(path, content)
        return path

    def use(self, given: Path) -> tuple[Graph, Any]:
        graph = load_graph(given)
        ids = load_node_ids(given, graph.num_nodes)
        command("data", "show", str(given), "--json")
        return graph, ids

    def wrong(self, given: Path, content: Any, result: tuple[Graph, Any]) -> str | None:
        graph, ids = result
        return misread(graph, arrays_of(given), ids)


class NpzRun(Npz):
    """``fedgkd run`` on such a file: whatever was accepted can be trained on."""

    name = "npz-run"
    names_file = False  # what does not fit together is said of the clients

    def use(self, given: Path) -> Any:
        graph = load_graph(given)
        run_briefly("--dataset", str(given), "--clients", "2")
        return graph, load_node_ids(given, graph.num_nodes)


def run_briefly(*arguments: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as out:
        settings = ("rounds=1", "hidden=4", "algorithm=fedavg", "local_epochs=1")
        pairs = [part for setting in settings for part in ("--set", setting)]
        command("run", *arguments, *pairs, "--out", f"{out}/run")


def arrays_of(path: Path) -> Arrays:
    """What numpy reads; two members of one name give a marker that fits nothing."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    if len(set(names)) < len(names):
        return {"twice": True}
    with np.load(path, allow_pickle=False) as file:
        found = {}
        for key in file.files:
            try:
                found[key] = file[key]
            except Exception:  # noqa: BLE001  of no use to the graph, or it would not have been accepted
                found[key] = None
        return found


def misread(graph: Graph, arrays: Arrays, ids: Any = None) -> str | None:
    """How ``graph`` differs from what the arrays mean, by a reading that is slow and has no mercy."""
    if "twice" in arrays:
        return "two members of one name"
    if BENCHMARK & set(arrays):
        if OURS & set(arrays):
            return "the keys of two formats"
        adjacency, problem = sparse_table(arrays, "adj")
        x, other = sparse_table(arrays, "attr")
        if problem or other:
            return problem or other
        n = len(adjacency)
        if adjacency.shape != (n, n) or len(x) != n:
            return "adjacency and attributes of different sizes"
        edges = {(i, j) for i in range(n) for j in range(n) if adjacency[i, j] or adjacency[j, i]}
        y = arrays["labels"]
    else:
        if "x" in arrays and "x_data" in arrays:
            return "the keys of two formats"
        x, problem = sparse_table(arrays, "x") if "x_data" in arrays else _table(arrays["x"])
        if problem:
            return problem
        pairs = _whole(arrays["edge_index"])
        if pairs is None or np.shape(arrays["edge_index"])[:1] != (2,) or np.ndim(arrays["edge_index"]) != 2:
            return "edge_index is not a pair of lists of node numbers"
        if arrays["edge_index"].dtype == bool and arrays["edge_index"].size:
            return "node numbers are true and false"
        if graph.edge_index.ravel().tolist() != pairs:
            return "other edges"
        edges, y = None, arrays["y"]
    if edges is not None and edges != set(map(tuple, graph.edge_index.T.tolist())):
        return "other edges"
    if any(not 0 <= end < len(x) for end in graph.edge_index.ravel().tolist()):
        return "an edge to nowhere"
    labels = _whole(y)
    if labels is None or np.ndim(y) != 1 or graph.y.tolist() != labels or len(labels) != len(x):
        return "other labels"
    read = graph.x.toarray() if graph.is_sparse else graph.x
    if read.shape != x.shape or not np.allclose(read, x, rtol=1e-5, atol=1e-37) or not np.isfinite(read).all():
        return "other features"
    return _other_parts(graph, arrays, len(x), x.shape[1], ids)


def _other_parts(graph: Graph, arrays: Arrays, n: int, features: int, ids: Any) -> str | None:
    for i, key in enumerate(("train_mask", "val_mask", "test_mask")):
        mask = arrays.get(key)
        if (mask is None) != (graph.masks is None):
            return f"{key} was dropped or made up"
        if mask is not None and (mask.dtype != bool or mask.shape != (n,) or (mask != graph.masks[i]).any()):
            return f"{key} is not one truth per node"
    classes = arrays.get("num_classes")
    if classes is not None and (
        classes.dtype.kind not in "iu" or classes.size != 1 or int(classes.item()) != graph.num_classes
    ):
        return "another number of classes"
    for key, size in (("feature_names", features), ("class_names", graph.num_classes), ("node_names", n)):
        names = arrays.get(key)
        if names is None:
            continue
        if names.dtype.kind not in "Uiu" or names.shape != (size,):
            return f"{key} is not one name each"
        if [str(name) for name in names.tolist()] != list(getattr(graph, key)):
            return f"other {key}"
        if len(set(names.tolist())) < size or "" in names.tolist():
            return f"{key}: one name twice, or empty"
    numbers = arrays.get("node_ids")
    if numbers is not None and ids is not None:
        expected = _whole(numbers)
        if (
            expected is None
            or ids.tolist() != expected
            or len(set(expected)) < n
            or min(expected) < 0
            or numbers.shape != (n,)
        ):
            return "other node ids"
    return None


def _table(x: Any) -> tuple[Any, str | None]:
    if x.ndim != 2 or x.dtype.kind not in "biuf":
        return x, "x is not a table of numbers"
    return x.astype(np.float64), None if np.isfinite(x).all() else "x holds what is not finite"


def sparse_table(arrays: Arrays, prefix: str) -> tuple[Any, str | None]:
    parts = [arrays.get(f"{prefix}_{part}") for part in ("data", "indices", "indptr", "shape")]
    if any(part is None for part in parts):
        return None, f"{prefix} is not whole"
    data, indices, indptr, shape = parts
    sizes = _whole(shape)
    if sizes is None or shape.dtype.kind == "b" or len(sizes) != 2 or min(sizes) < 0 or sizes[0] * sizes[1] > 10**7:
        return None, f"{prefix}_shape is no shape"
    if data.dtype.kind not in "biuf" or not np.isfinite(data).all():
        return None, f"{prefix}_data are not numbers"
    columns, starts = _whole(indices), _whole(indptr)
    if columns is None or starts is None or {indices.dtype.kind, indptr.dtype.kind} & {"b"}:
        return None, f"{prefix}: indices are not whole numbers"
    rows, width = sizes
    if len(starts) != rows + 1 or starts[0] != 0 or starts[-1] != len(columns) or len(columns) != data.size:
        return None, f"{prefix}: parts that do not fit"
    matrix = np.zeros((rows, width))
    for row in range(rows):
        if not starts[row] <= starts[row + 1] <= len(columns):
            return None, f"{prefix}: rows that overlap"
        for k in range(starts[row], starts[row + 1]):
            if not 0 <= columns[k] < width:
                return None, f"{prefix}: a column outside"
            matrix[row, columns[k]] += float(data[k])
    return matrix, None


def _whole(values: Any) -> list[int] | None:
    """Exactly, as Python's whole numbers."""
    if values.size and values.dtype.kind not in "biuf":
        return None
    flat = values.ravel().tolist()
    if any(isinstance(value, float) and not value.is_integer() for value in flat):
        return None
    return [int(value) for value in flat]
