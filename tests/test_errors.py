"""Messages stay one line, and what they quote stays short, whatever the input was."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedgkd
from fedgkd.errors import DataError, FedGKDError, FetchError, SettingError, quoted, shortened

SOURCE = Path(fedgkd.__file__).parent
# A query of MLflow's, Python's own sentence about attributes, and the place where the marks are made.
NO_MESSAGES = ("experiments/tracking.py", "__init__.py", "cli/__init__.py", "errors.py")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("cora", "'cora'"),
        ("x" * 80, "'" + "x" * 80 + "'"),
        ("x" * 81, "'" + "x" * 79 + "…'"),
        ("a\nb\r\tc", r"'a\nb\r\tc'"),
        ("\x1b[31mred\x00", r"'\x1b[31mred\x00'"),
        ("line\u2028paragraph\u202eturned", r"'line\u2028paragraph\u202eturned'"),
        ("\udcff", r"'\udcff'"),
        ("größer, 图", "'größer, 图'"),
        (None, "'None'"),
    ],
)
def test_quoted(value: object, shown: str) -> None:
    assert quoted(value) == shown
    assert shortened(value) == shown[1:-1]


def test_a_number_too_long_to_write_out() -> None:
    assert quoted(0x10**5000) == "'a number of more than 4300 digits'"


def test_a_message_is_one_line_whoever_wrote_it() -> None:
    assert str(DataError("cannot read it:\n  the reason\r\n\tstands here\x07")) == (
        r"cannot read it: the reason stands here\x07"
    )


def test_a_path_is_whole_unless_a_part_of_it_is_too_long() -> None:
    usual = "/".join(["folder"] * 30)
    assert str(FetchError(f"cannot read {usual}/graph.npz")) == f"cannot read {usual}/graph.npz"
    assert str(FetchError(f"cannot read /tmp/{'x' * 300}/graph.npz")) == f"cannot read /tmp/{'x' * 79}…/graph.npz"


def test_punctuation_after_a_long_word_stays() -> None:
    assert str(DataError(f"{'x' * 300}: too long")) == f"{'x' * 79}…: too long"
    assert str(DataError(f"it is (very {'x' * 300}); stop")) == f"it is (very {'x' * 79}…); stop"


def test_a_message_has_an_end() -> None:
    message = str(SettingError("wrong " * 100_000 + "; give less"))
    assert len(message) <= 600
    assert message.endswith("; give less")


def test_every_quotation_is_cut() -> None:
    """A message that writes quotation marks itself would show its input in full length."""
    found = [
        f"{file.relative_to(SOURCE)}:{text.lineno}"
        for file in SOURCE.rglob("*.py")
        if file.relative_to(SOURCE).as_posix() not in NO_MESSAGES
        for text in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(text, ast.JoinedStr) and any(_in_marks(text.values, place) for place in range(len(text.values)))
    ]
    assert found == []


def _in_marks(parts: list[ast.expr], place: int) -> bool:
    if not isinstance(parts[place], ast.FormattedValue) or not 0 < place < len(parts) - 1:
        return False
    before, after = parts[place - 1], parts[place + 1]
    return (
        isinstance(before, ast.Constant)
        and isinstance(after, ast.Constant)
        and str(before.value).endswith("'")
        and str(after.value).startswith("'")
    )


def test_errors_keep_their_kind_through_a_pickle() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(FetchError("gone")))
    assert (type(error), str(error)) == (FetchError, "gone")
    assert isinstance(error, FedGKDError)
