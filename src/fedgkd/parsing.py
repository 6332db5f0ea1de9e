"""Text from outside becomes values, or a ``ValueError`` that says in one sentence why not."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

from fedgkd.errors import quoted

MOST_DIGITS = 19
"""Of a whole number: so many fit into 64 bits."""


def parse_json(text: str | bytes) -> Any:
    """What ``json.loads`` reads, without what only Python takes for JSON or what would be bent in silence.

    Raises:
        ValueError: If the text is not JSON or nested too deep, if an object names a key twice, or if a number is not
            finite or too large.
    """
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_no_number,
            parse_float=_finite,
            parse_int=_whole,
        )
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (key, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {quoted(key)} stands there twice")
    return found


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > MOST_DIGITS:
        raise ValueError("a number is too large")
    return int(digits)
