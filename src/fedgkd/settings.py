"""Settings: dataclass fields that know their meaning, range and choices."""

from __future__ import annotations

import dataclasses
import difflib
import math
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from fedgkd.errors import SettingError, quoted

T = TypeVar("T")

NONE = "none"
"""How text, and TOML, say None for a setting that may be None."""

_WORDS = {bool: "true or false", int: "a whole number", float: "a finite number", str: "text"}


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
    text = value.strip() if isinstance(value, str) else value
    try:
        if kind is bool:
            return _as_bool(text)
        if kind is str and not isinstance(text, str):
            raise ValueError
        return _as_number(text, kind) if kind in (int, float) else kind(text)
    except (TypeError, ValueError, OverflowError):
        wanted = _WORDS.get(kind, f"a {kind.__name__}")
        raise SettingError(f"{name} must be {wanted}, not {quoted(value)}") from None


def _as_bool(value: Any) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise ValueError


def _as_number(value: Any, kind: type[int] | type[float]) -> float:
    number = kind(value)
    if isinstance(value, bool) or not math.isfinite(number) or (isinstance(value, float) and number != value):
        raise ValueError
    return number


def suggest(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or nothing where nothing is close."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {quoted(close[0])}?" if close else ""
