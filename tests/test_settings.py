"""Settings: fields that know their meaning, range and choices."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest

from fedgkd.errors import SettingError
from fedgkd.settings import check, coerce, describe_range, setting, suggest


@dataclass(frozen=True)
class Example:
    rate: float = setting(0.5, "a share", low=0, high=1)
    lr: float = setting(0.01, "a step", low=0, open_low=True)
    rounds: int = setting(3, "how many", low=1)
    kind: str = setting("a", "which", choices=("a", "b"))
    flag: bool = setting(False, "whether")
    scale: float | None = setting(None, "or none", low=0, open_low=True)
    free: int = 7  # without meaning and range

    def __post_init__(self) -> None:
        check(self)


def test_a_setting_knows_its_meaning_and_default() -> None:
    rate, *_ = dataclasses.fields(Example)
    assert (rate.default, rate.metadata["meaning"]) == (0.5, "a share")
    assert Example() == Example(0.5, 0.01, 3, "a", False, None, 7)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"rate": "0.25"}, 0.25),
        ({"rate": 1}, 1.0),
        ({"rounds": "12"}, 12),
        ({"rounds": 12.0}, 12),
        ({"kind": " b "}, "b"),
        ({"flag": "yes"}, True),
        ({"flag": "OFF"}, False),
        ({"flag": True}, True),
        ({"scale": "none"}, None),
        ({"scale": "1e-3"}, 0.001),
        ({"rounds": "+012"}, 12),
        ({"lr": ".5"}, 0.5),
        ({"lr": "5.E-1"}, 0.5),
    ],
)
def test_text_and_toml_values_become_the_settings_type(values: dict[str, Any], expected: Any) -> None:
    (name,) = values
    found = getattr(Example(**values), name)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"rate": -0.1}, "rate must be at least 0 and at most 1, not -0.1"),
        ({"rate": "1.5"}, "rate must be at least 0 and at most 1, not 1.5"),
        ({"lr": 0}, "lr must be above 0, not 0.0"),
        ({"rounds": 0}, "rounds must be at least 1, not 0"),
        ({"kind": "c"}, "kind must be one of a, b, not 'c'"),
        ({"scale": 0.0}, "scale must be above 0, not 0.0"),
        ({"rounds": "many"}, "rounds must be a whole number, not 'many'"),
        ({"rounds": 1.5}, "rounds must be a whole number, not '1.5'"),
        ({"rounds": True}, "rounds must be a whole number, not 'True'"),
        ({"rounds": float("nan")}, "rounds must be a whole number, not 'nan'"),
        ({"rate": "half"}, "rate must be a finite number, not 'half'"),
        ({"rate": True}, "rate must be a finite number, not 'True'"),
        ({"rate": float("nan")}, "rate must be a finite number, not 'nan'"),
        ({"lr": "inf"}, "lr must be a finite number, not 'inf'"),
        ({"lr": None}, "lr must be a finite number, not 'None'"),
        ({"flag": "maybe"}, "flag must be true or false, not 'maybe'"),
        ({"flag": 1}, "flag must be true or false, not '1'"),
        ({"kind": 3}, "kind must be text, not '3'"),
        ({"free": "x"}, "free must be a whole number, not 'x'"),
        ({"rounds": "1_000"}, "rounds must be a whole number, not '1_000'"),
        ({"rounds": "１２"}, "rounds must be a whole number, not '１２'"),
        ({"rounds": "\u00a012"}, r"rounds must be a whole number, not '\xa012'"),
        ({"rounds": "9" * 5000}, f"rounds must be a whole number, not '{'9' * 79}…'"),
        ({"rounds": 2**63}, "rounds must be a whole number, not '9223372036854775808'"),
        ({"rounds": b"12"}, "rounds must be a whole number, not 'b'12''"),
        ({"rounds": ""}, "rounds must be a whole number, not ''"),
        ({"rate": "0_1"}, "rate must be a finite number, not '0_1'"),
        ({"rate": "٠.٥"}, "rate must be a finite number, not '٠.٥'"),
        ({"rate": "1e-400"}, "rate must be a finite number, not '1e-400'"),
        ({"lr": "1e400"}, "lr must be a finite number, not '1e400'"),
        ({"kind": "a\nb"}, r"kind must not have line breaks or control characters in it, as 'a\nb' has"),
        ({"kind": "\udcff"}, r"kind must not have line breaks or control characters in it, as '\udcff' has"),
    ],
)
def test_what_does_not_fit_names_the_setting(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError) as caught:
        Example(**values)
    assert str(caught.value) == sentence


def test_minus_zero_is_zero() -> None:
    assert [str(Example(rate=value).rate) for value in (-0.0, "-0", "-0.0e5")] == ["0.0"] * 3


def test_none_only_where_it_is_allowed() -> None:
    assert coerce("scale", "none", float | None) is None
    assert coerce("kind", "none", str) == "none"


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"choices": ("a", "b"), "low": None, "high": None, "open_low": False}, "a | b"),
        ({"choices": None, "low": 0, "high": 0.99, "open_low": True}, "above 0 and at most 0.99"),
        ({"choices": None, "low": None, "high": 5, "open_low": False}, "at most 5"),
        ({"choices": None, "low": None, "high": None, "open_low": False}, ""),
    ],
)
def test_ranges_in_words(limits: dict[str, Any], words: str) -> None:
    assert describe_range(limits) == words


def test_the_closest_name_is_suggested() -> None:
    assert suggest("local_epoch", ["lr", "local_epochs"]) == "; did you mean 'local_epochs'?"
    assert suggest("zzz", ["lr", "local_epochs"]) == ""
