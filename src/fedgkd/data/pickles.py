"""Planetoid's pickles, read without trust: nothing that a file says is run, and only plain values are made.

A pickle is a program. The published files (Python 2 era) name arrays, sparse matrices, ``defaultdict`` and ``list``.
Each of these becomes a stand-in that only notes what it is given; arrays are made from the notes after they were
checked. Any other name that a file asks for is refused before it is looked up.

The unpickler is that of Python's library in Python: the one in C takes memory that a file only has to name.
"""

from __future__ import annotations

import math
import pickle
import re
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgkd.data.files import open_file
from fedgkd.errors import DataError, quoted, shortened

_KINDS = re.compile("b1|[iu][1248]|f[248]")

_HEAVY = (pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.INST, pickle.OBJ)
"""Operations that take memory, or make objects, in ways that no published file uses."""

# What unpickling raises on bytes that are cut off or changed; the pickle documentation leaves the list open.
_DAMAGED = (
    pickle.UnpicklingError,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RecursionError,
    struct.error,
    TypeError,
    ValueError,
)


class SparseParts(NamedTuple):
    """A matrix in compressed sparse rows, as its file has it."""

    data: Any
    indices: Any
    indptr: Any
    shape: Any


class _Noted:
    """Stands for an object, and knows what it was made from."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Type(_Noted):
    def made(self) -> np.dtype[Any]:
        kind, order = self.arguments[0], self.state[1]
        if not _KINDS.fullmatch(kind) or order not in ("<", ">", "|", "="):
            raise ValueError(f"values of type {kind}")
        found: np.dtype[Any] = np.dtype(kind).newbyteorder(order)
        return found


class _Array(_Noted):
    def made(self) -> NDArray[Any]:
        _, shape, dtype, columns_first, content = self.state
        kind = dtype.made()
        raw = content.encode("latin1") if isinstance(content, str) else bytes(memoryview(content))
        if any(type(size) is not int or size < 0 for size in shape) or math.prod(shape) * kind.itemsize != len(raw):
            raise ValueError(f"{len(raw)} bytes for an array of shape {shape}")
        return np.frombuffer(raw, kind).reshape(shape, order="F" if columns_first else "C").copy()


class _Matrix(_Noted):
    def __new__(cls) -> _Matrix:
        return super().__new__(cls)

    def made(self) -> SparseParts:
        data, indices, indptr = (self.state[name].made() for name in ("data", "indices", "indptr"))
        return SparseParts(data, indices, indptr, self.state["_shape"])


class _Lists(dict[Any, Any]):
    """A ``defaultdict`` without its default."""

    def __init__(self, default: Any) -> None:
        super().__init__()


_NAME = object()  # only handed on, as what an array or a dictionary is made of

# The names as the files spell them; numpy and scipy have since moved some of these modules.
_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _NAME,
    ("numpy", "dtype"): _Type,
    ("scipy.sparse.csr", "csr_matrix"): _Matrix,
    ("collections", "defaultdict"): _Lists,
    ("__builtin__", "list"): _NAME,
}


class _RestrictedUnpickler(pickle._Unpickler):
    dispatch = {code: run for code, run in pickle._Unpickler.dispatch.items() if code not in {c[0] for c in _HEAVY}}  # noqa: RUF012

    def __init__(self, file: Any, path: Path) -> None:
        super().__init__(file, encoding="latin1")
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise DataError(
                f"{self._path}: refused to unpickle {quoted(f'{module}.{name}')}, which no published file of this kind "
                "holds; delete the file and bring the published one"
            )
        return _ADMITTED[module, name]


def load_pickle(path: Path) -> Any:
    """The content of a Planetoid pickle: an array, :class:`SparseParts` or a dictionary of lists.

    Raises:
        DataError: If the file asks for a class outside the table above, or cannot be read; the message names both.
    """
    with open_file(path) as file:
        try:
            found = _RestrictedUnpickler(file, path).load()
            return found.made() if isinstance(found, _Type | _Array | _Matrix) else found
        except OSError as problem:
            raise DataError(f"{path}: cannot be read ({problem.strerror or problem})") from problem
        except _DAMAGED as problem:
            reason = shortened(str(problem) or type(problem).__name__)
            raise DataError(f"{path}: not a readable pickle ({reason}); the file may be truncated") from problem
