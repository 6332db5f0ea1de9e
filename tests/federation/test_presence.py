"""What the server writes down of who is there, and what is made of a text that is something else."""

from __future__ import annotations

import pytest

from fedgkd.federation.presence import Presence


def test_it_comes_out_as_it_went_in() -> None:
    presence = Presence("a-job", ("site-0", "site-1"), ("site-1",), 3)
    assert Presence.from_text(presence.to_text()) == presence


@pytest.mark.parametrize(
    "text", ["", "half {", "[]", "5", "{}", '{"job": null, "connected": 5, "here": [], "members": 0}']
)
def test_anything_else_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Presence.from_text(text)
