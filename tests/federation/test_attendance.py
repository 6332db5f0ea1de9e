"""Who is asked in a round."""

from __future__ import annotations

from fedgkd.federation.attendance import Attendance


class Clock:
    now = 100.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def attendance() -> Attendance:
    return Attendance(("a", "b", "c"), Clock())


def test_everybody_who_can_be_reached_is_asked_in_the_order_of_the_federation() -> None:
    assert attendance().expected({"c", "a"}) == ["a", "c"]


def test_a_site_that_is_not_of_the_federation_is_never_asked() -> None:
    sites = attendance()
    sites.saw("stranger")
    assert sites.expected({"a", "stranger"}) == ["a"]
    assert "stranger" not in sites.seen


def test_one_missed_round_is_forgiven_two_make_a_site_dark() -> None:
    sites = attendance()
    assert sites.end_round(["a", "b"], ["a"]) == []
    assert sites.expected(["a", "b"]) == ["a", "b"]
    assert sites.end_round(["a", "b"], ["a"]) == ["b"]
    assert sites.expected(["a", "b"]) == ["a"]


def test_misses_count_only_in_a_row() -> None:
    sites = attendance()
    sites.end_round(["b"], [])
    sites.end_round(["b"], ["b"])
    assert sites.end_round(["b"], []) == []
    assert not sites.is_dark("b")


def test_a_dark_site_is_asked_again_once_it_shows_itself() -> None:
    sites = attendance()
    sites.saw("b")
    sites.end_round(["b"], [])
    sites.end_round(["b"], [])
    assert sites.expected(["b"]) == []
    sites.saw("b")
    assert sites.expected(["b"]) == ["b"]


def test_a_dark_site_that_comes_back_and_misses_again_is_dark_at_once() -> None:
    sites = attendance()
    for _ in range(2):
        sites.end_round(["b"], [])
    sites.saw("b")
    sites.end_round(["b"], [])
    assert sites.is_dark("b")
