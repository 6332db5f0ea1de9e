"""Settings: dataclass fields that know their meaning, range and choices."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any, TypeVar

from fedgkd.errors import SettingError, quoted
from fedgkd.parsing import fits, parse_number, parse_whole

T = TypeVar("T")

NONE = "none"
"""How text, and TOML, say None for a setting that may be None."""

_WORDS = {bool: "true or false", int: "a whole number", float: "a finite number", str: "text"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def setting(
    default: T,
    meaning: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Iterable[str] | None = None,
    open_low: bool = False,
) -> T:
    """A dataclass field with its meaning and the values that it takes; ``open_low`` excludes ``low`` itself."""
    metadata = {
        "meaning": meaning,
        "low": low,
        "high": high,
        "choices": None if choices is None else tuple(choices),
        "open_low": open_low,
    }
    field: T = dataclasses.field(default=default, metadata=metadata)
    return field


def check(settings: Any) -> None:
    """Raise if a value is of the wrong type or out of range; call it in ``__post_init__``."""
    hints = typing.get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        value = coerce(field.name, getattr(settings, field.name), hints[field.name])
        object.__setattr__(settings, field.name, value)
        _check_range(field.name, value, field.metadata)


def _check_range(name: str, value: Any, limits: Mapping[str, Any]) -> None:
    if value is None or not limits:
        return
    if limits["choices"] is not None and value not in limits["choices"]:
        raise SettingError(f"{name} must be one of {', '.join(limits['choices'])}, not {quoted(value)}")
    low, high = limits["low"], limits["high"]
    too_low = low is not None and (value <= low if limits["open_low"] else value < low)
    if too_low or (high is not None and value > high):
        raise SettingError(f"{name} must be {describe_range(limits)}, not {value}")


def describe_range(limits: Mapping[str, Any]) -> str:
    """The values that a setting takes, in words."""
    if limits.get("choices"):
        return " | ".join(limits["choices"])
    low, high = limits.get("low"), limits.get("high")
    above = None if low is None else f"above {low:g}" if limits["open_low"] else f"at least {low:g}"
    below = None if high is None else f"at most {high:g}"
    return " and ".join(part for part in (above, below) if part)


def coerce(name: str, value: Any, kind: Any) -> Any:
    """A value from the command line (text) or a TOML file as the type that the setting has."""
    if typing.get_origin(kind) is not None or type(kind).__name__ == "UnionType":
        options = typing.get_args(kind)
        if type(None) in options and (value is None or value == NONE):
            return None
        (kind,) = (option for option in options if option is not type(None))
    text = value.strip(" \t\n") if isinstance(value, str) else value
    try:
        found = _READERS[kind](text)
    except (TypeError, ValueError, OverflowError):
        raise SettingError(f"{name} must be {_WORDS[kind]}, not {quoted(value)}") from None
    if kind is str and _CONTROL.search(found):
        raise SettingError(f"{name} must not have line breaks or control characters in it, as {quoted(value)} has")
    return found


def _as_bool(value: Any) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise ValueError


def _as_whole(value: Any) -> int:
    number = parse_whole(value) if isinstance(value, str) else int(_real(value))
    if (not isinstance(value, str) and number != value) or not fits(number):
        raise ValueError
    return number


def _as_float(value: Any) -> float:
    number = parse_number(value) if isinstance(value, str) else float(_real(value)) + 0.0  # -0 is 0
    if not math.isfinite(number):
        raise ValueError
    return number


def _real(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError
    return value


def _as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


_READERS: dict[Any, Callable[[Any], Any]] = {bool: _as_bool, int: _as_whole, float: _as_float, str: _as_text}


def suggest(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or nothing where nothing is close."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {quoted(close[0])}?" if close else ""


def assignments(option: str, form: str, texts: Iterable[str]) -> dict[str, str]:
    """``name=value`` texts of a command-line option, each name once."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip(" ")
        if not equals or not name:
            raise SettingError(f"{option} takes {form}, not {quoted(text)}")
        if name in values:
            raise SettingError(f"{option} has {quoted(name)} twice; give it one value")
        values[name] = value
    return values
