"""What every error for the user is: one line, whatever it quotes."""

from __future__ import annotations

import pickle

import pytest

from fedgkd.errors import DataError, shortened
from fedgkd.parsing import parse_json


def test_a_message_is_one_line_that_a_terminal_can_show() -> None:
    assert str(DataError("a\r\nb\tc \x1b[31md\x00 é \udcff")) == r"a  b c \x1b[31md\x00 é \udcff"
    assert str(pickle.loads(pickle.dumps(DataError("a\nb")))) == "a b"


def test_long_words_are_cut_but_not_paths() -> None:
    folder = "/".join(["part"] * 40)
    assert str(DataError(f"{folder}/g.npz: no such file")) == f"{folder}/g.npz: no such file"
    assert str(DataError(f"/tmp/{'x' * 300}/g.npz: no such file")) == f"/tmp/{'x' * 79}…/g.npz: no such file"


def test_quotes_are_cut_at_80_characters() -> None:
    assert shortened("a b " * 20) == "a b " * 20
    assert shortened("a b " * 21) == ("a b " * 20)[:79] + "…"


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
