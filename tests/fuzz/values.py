"""Values that programs stumble over, and changes to nested data as JSON and TOML hold it."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any


class Raw:
    """Text that stands in a JSON file as it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"Raw({self.text[:40]!r})"


TEXTS = (
    "", " ", "\n", "a\nb", "\0", "\x1b[31m", "é", "e\u0301", "\u202e", "😀", "\ufeff", "x" * 300, "x" * 100_000,
    "../x", "/", ".", "..", "a/b", "NaN", "inf", "-1", "1_000", "٣", "1e999", "0x10", "True", "null", "{}", "%s", "'",
    '"', "1" * 5000, "\udcff",
)  # fmt: skip
NUMBERS = (
    0, -1, 1, 2, 3, 255, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, 2**63, -(2**63), 2**64 - 1, 10**30,
    0.5, -0.0, 1.5, -3.0, 7.5, 1e-320, 1e30, 1.7e308, 1e38, 3.5e38, True, False,
)  # fmt: skip
OTHERS = (None, [], {}, [[]], [None], {"": None}, [1, "a"], {"a": {"a": {"a": 1}}})
RAW = tuple(
    Raw(text)
    for text in (
        "NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "-" + "9" * 30, "1_000", "01", "+1", "", "nul", "'a'",
        '{"a":1,"a":2}', "[" * 1000 + "]" * 1000, "[" * 100_000, '{"a":' * 1000 + "1" + "}" * 1000,
    )
)  # fmt: skip


def extreme(draw: random.Random, *, raw: bool = False) -> Any:
    """A value of some kind that hardly anybody expects."""
    kinds = (TEXTS, NUMBERS, OTHERS) + ((RAW,) if raw else ())
    return draw.choice(draw.choice(kinds))


def near(draw: random.Random, value: Any) -> Any:
    """A value that is close to another one, or of the same kind."""
    if isinstance(value, bool):
        return draw.choice([not value, int(value), str(value)])
    if isinstance(value, int | float):
        return draw.choice([value + 1, value - 1, -value, value * 2, value + 0.5, str(value), [value], float(value)])
    if isinstance(value, str):
        other = draw.choice(["x", " ", "\n", "0", "é"])
        return draw.choice([value + other, value[:-1], value.upper(), value * 30, [value], value[::-1]])
    if isinstance(value, list) and value:
        return draw.choice([value[:-1], value * 2, value[::-1], {str(i): v for i, v in enumerate(value)}, value[0]])
    if isinstance(value, dict) and value:
        return draw.choice([list(value), list(value.items()), {}, dict(list(value.items())[:-1])])
    return extreme(draw)


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of nested dicts and lists."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in list(entries):
        yield tree, key
        yield from places(value)


def change_tree(draw: random.Random, tree: Any, *, raw: bool = False) -> str:
    """Change one place of nested dicts and lists, in place; says what was done."""
    found = list(places(tree))
    if not found:
        return "nothing"
    holder, key = draw.choice(found)
    kind = draw.randrange(6)
    if kind == 0:
        del holder[key]
        return f"without {key}"
    if kind == 1 and isinstance(holder, dict):
        name = draw.choice([f"{key}x", f"{key}"[:-1], str(key).upper(), draw.choice(TEXTS[:-1])])
        holder[name] = holder.pop(key)
        return f"{key} is called {name[:40]!r}"
    if kind == 2:
        other_holder, other = draw.choice(found)
        holder[key] = copy.deepcopy(other_holder[other])
        return f"{key} as {other}"
    holder[key] = near(draw, holder[key]) if kind in (3, 4) else extreme(draw, raw=raw)
    return f"{key} = {str(holder[key])[:40]!r}"


def to_json(tree: Any) -> str:
    """JSON, with what is :class:`Raw` in it as it is."""
    raw: list[str] = []

    def known(value: Any) -> str:
        raw.append(value.text)
        return f"<raw {len(raw) - 1}>"

    text = json.dumps(tree, default=known)
    for i, piece in enumerate(raw):
        text = text.replace(f'"<raw {i}>"', piece)
    return text
