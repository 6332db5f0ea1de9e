"""Text from outside becomes values, or a ``ValueError`` that says in one sentence why not."""

from __future__ import annotations

import json
import math
import re
import stat
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from fedgkd.errors import FedGKDError, quoted

MOST_DIGITS = 19
"""Of a whole number: so many fit into 64 bits."""

MOST_BYTES = 2**29
"""Of a file of text: far more than any of ours has."""

# Python's own int() and float() also take 1_000, digits of any alphabet, and spaces around them.
_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def parse_whole(text: str) -> int:
    """A whole number in decimal digits.

    Raises:
        ValueError: If the text is anything else, or the number does not fit into 64 bits.
    """
    if not _WHOLE.fullmatch(text):
        raise ValueError("it is not a whole number in decimal digits")
    return _whole(text)


def parse_number(text: str) -> float:
    """A number in decimal digits, with or without a fraction and an exponent.

    Raises:
        ValueError: If the text is anything else, as ``nan`` or ``inf``, or beyond what 64 bits can hold.
    """
    if not _NUMBER.fullmatch(text):
        raise ValueError("it is not a number in decimal digits")
    value = _finite(text)
    if value == 0 and re.search("[1-9]", re.split("[eE]", text)[0]):
        raise ValueError("a number is too small")
    return value + 0.0  # -0 is 0


def parse_toml(text: str) -> dict[str, Any]:
    """What ``tomllib.loads`` reads, without numbers that are too large.

    Raises:
        ValueError: If the text is not TOML or nested too deep, or if a number is not finite or too large.
    """
    try:
        found = tomllib.loads(text, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    _check_sizes(found)
    return found


def _check_sizes(value: Any) -> None:
    """Whole numbers come without a hook, and in hexadecimal digits without a limit."""
    if isinstance(value, int) and not fits(value):
        raise ValueError("a number is too large")
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_sizes(part)


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
    size = digits.lstrip("+-0") or "0"
    if len(size) <= MOST_DIGITS:
        value = -int(size) if digits.startswith("-") else int(size)
        if fits(value):
            return value
    raise ValueError("a number is too large")


def fits(value: int) -> bool:
    """Whether 64 bits can hold it."""
    return -(2**63) <= value < 2**63


# --- files ------------------------------------------------------------------------------------------------------------


def read_json(path: Path, error: type[FedGKDError], remedy: str, says: str = "") -> dict[str, Any]:
    """The fields that a JSON file holds.

    Raises:
        FedGKDError: Of class ``error``, if there is no such file, it cannot be read, or it holds anything else; the
            sentence begins with the file and what is said of it, and ends with the remedy.
    """
    found = json_value(read_text(path, error, remedy), f"{path}{says}", error, remedy)
    if not isinstance(found, dict):
        raise error(f"{path}{says} holds no fields but a {type(found).__name__}; {remedy}")
    return found


def json_value(text: str, where: str, error: type[FedGKDError], remedy: str) -> Any:
    """The value of a JSON text that stands at ``where``; raises as :func:`read_json`."""
    try:
        return parse_json(text)
    except json.JSONDecodeError as problem:
        line = f", line {problem.lineno}," if problem.lineno > 1 or "\n" in text else ""
        raise error(f"{where}{line} is not JSON ({problem.msg}); {remedy}") from problem
    except ValueError as problem:
        raise error(f"{where} cannot be read ({problem}); {remedy}") from problem


def read_toml(path: Path, error: type[FedGKDError], remedy: str = "") -> dict[str, Any]:
    """The fields that a TOML file holds; raises as :func:`read_json`."""
    data = _read_bytes(path, error, remedy)
    try:
        return parse_toml(data.decode("utf-8"))
    except ValueError as problem:
        raise error(f"{path} is not a TOML file: {problem}{_end(remedy)}") from problem


def read_text(path: Path, error: type[FedGKDError], remedy: str = "") -> str:
    """The text of a file; raises as :func:`read_json`."""
    try:
        return _read_bytes(path, error, remedy).decode("utf-8")
    except UnicodeDecodeError as problem:
        raise error(f"{path} cannot be read ({problem}){_end(remedy)}") from problem


def _read_bytes(path: Path, error: type[FedGKDError], remedy: str) -> bytes:
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):  # a pipe may never say anything, a device never end
            raise error(f"{path} cannot be read (it is {'a folder' if path.is_dir() else 'not a file'}){_end(remedy)}")
        if facts.st_size > MOST_BYTES:
            raise error(f"{path} cannot be read (it has more than {MOST_BYTES:,} bytes){_end(remedy)}")
        return path.read_bytes()
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the path
        reason = getattr(problem, "strerror", None) or problem
        raise error(f"cannot read {path}: {reason}{_end(remedy)}") from problem


def _end(remedy: str) -> str:
    return f"; {remedy}" if remedy else ""
