"""Planetoid's pickles, read without trust: only the few classes that those files hold can be made.

A pickle is a program. The published files (Python 2 era) need arrays, sparse matrices, ``defaultdict`` and ``list``;
any other name that a file asks for is refused before it is looked up, so nothing of it runs.
"""

from __future__ import annotations

import pickle
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedgkd.errors import DataError

# The names as the files spell them; numpy and scipy have since moved some of these modules.
_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("scipy.sparse.csr", "csr_matrix"): sp.csr_matrix,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
}

# What unpickling raises on bytes that are cut off or changed; the pickle documentation leaves the list open.
_DAMAGED = (
    pickle.UnpicklingError,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    TypeError,
    ValueError,
)


class _RestrictedUnpickler(pickle.Unpickler):
    def __init__(self, file: Any, path: Path) -> None:
        super().__init__(file, encoding="latin1")
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise DataError(
                f"{self._path}: refused to unpickle '{module}.{name}', which no published file of this kind holds; "
                "delete the file and bring the published one"
            )
        return _ADMITTED[module, name]


def load_pickle(path: Path) -> Any:
    """The content of a Planetoid pickle.

    Raises:
        DataError: If the file asks for a class outside the table above, or cannot be read; the message names both.
    """
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            # numpy tells the makers of these files, not our users, that their spelling of dtypes is dated.
            warnings.simplefilter("ignore")
            return _RestrictedUnpickler(file, path).load()
    except OSError as problem:
        raise DataError(f"{path}: cannot be read ({problem.strerror or problem})") from problem
    except _DAMAGED as problem:
        raise DataError(f"{path}: not a readable pickle ({problem}); the file may be truncated") from problem
