"""Values as JSON can hold them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """Nested dicts and lists; arrays become lists, and a number that is not there (NaN) or not finite becomes null."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def alike(value: Any, example: Any) -> bool:
    """Whether plain values have the keys, lengths and kinds of an example; an empty dict stands for any dict."""
    if isinstance(example, dict):
        same = isinstance(value, dict) and (not example or value.keys() == example.keys())
        return same and all(alike(value[key], part) for key, part in example.items())
    if isinstance(example, list):
        same = isinstance(value, list) and len(value) == len(example)
        return same and all(map(alike, value, example))
    if isinstance(example, bool | str):
        return type(value) is type(example)
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
