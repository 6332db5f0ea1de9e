"""Text from outside is read in one way, and refused in one way."""

from __future__ import annotations

import pytest

from fedgkd.parsing import parse_json


def test_json_as_everybody_reads_it() -> None:
    assert parse_json('{"a": [1, -2.5, null, true, "x"], "b": -9223372036854775808}') == {
        "a": [1, -2.5, None, True, "x"],
        "b": -(2**63),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested too deep"),
        ("[NaN]", "NaN is not a number"),
        ("[-Infinity]", "-Infinity is not a number"),
        ("[1e999]", "a number is too large"),
        ("9" * 5000, "a number is too large"),
        ('{"a": 1, "a": 2}', "the key 'a' stands there twice"),
        ("{", "property name"),
        (b"\xff\xfe\xff", "decode"),
    ],
)
def test_what_json_is_not(text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_json(text)
