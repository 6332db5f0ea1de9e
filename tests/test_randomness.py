"""One seed decides everything, by streams that are told apart by what they are for."""

from __future__ import annotations

import numpy as np
import pytest

from fedgkd.randomness import stream


def test_equal_names_give_equal_numbers() -> None:
    first, second = stream(3, "dropout", 1, 2).random(5), stream(3, "dropout", 1, 2).random(5)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("other", [(4, "dropout", 1, 2), (3, "noise", 1, 2), (3, "dropout", 2, 1), (3, "dropout", 1)])
def test_any_other_name_gives_other_numbers(other: tuple[int, str, int]) -> None:
    seed, purpose, *keys = other
    assert not np.isin(stream(3, "dropout", 1, 2).random(50), stream(seed, purpose, *keys).random(50)).any()


def test_streams_do_not_depend_on_global_state_or_on_each_other() -> None:
    expected = stream(0, "weights").random(3)
    np.random.seed(1)  # noqa: NPY002 - the global generator must not matter
    stream(0, "something else").random(1000)
    np.testing.assert_array_equal(stream(0, "weights").random(3), expected)


def test_the_numbers_stay_the_same_from_version_to_version() -> None:
    """A run's seed means the same tomorrow; a change here changes every published figure."""
    assert stream(0, "initial weights").bit_generator.random_raw(2).tolist() == [
        18162902671385859377,
        152748137241899300,
    ]
