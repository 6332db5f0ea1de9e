"""What the coordinator's server lets through, message by message."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra: pip install 'fedgkd[federation]'")

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, MessagePropKey
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import STREAM_CHANNEL, STREAM_DATA_TOPIC, StreamDataType, StreamHeaderKey

from fedgkd.errors import FederationError
from fedgkd.federation.gate import Gate
from fedgkd.federation.suspended import read_suspended, write_suspended


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(["north", "south"], 1000, tmp_path / "suspended.json")


def piece(stream: int, number: int = 0, size: int = 100, said: int = 0, *, last: bool = False, **more: Any) -> Message:
    headers = {
        MessageHeaderKey.CHANNEL: STREAM_CHANNEL,
        MessageHeaderKey.TOPIC: STREAM_DATA_TOPIC,
        MessageHeaderKey.ORIGIN: "north.job",
        StreamHeaderKey.STREAM_ID: stream,
        StreamHeaderKey.SEQUENCE: number,
        StreamHeaderKey.SIZE: said,
        StreamHeaderKey.DATA_TYPE: StreamDataType.FINAL if last else StreamDataType.CHUNK,
        **more,
    }
    message = Message(headers, bytes(size))
    message.set_prop(MessagePropKey.COMMON_NAME, "north")
    return message


def passes(gate: Gate, message: Message) -> bool:
    return gate.check(message) is None


def test_honest_streams_pass_for_ever(gate: Gate) -> None:
    for stream in range(100):
        assert all(passes(gate, piece(stream, number, said=900, last=number == 8)) for number in range(9))
    assert gate.alarms == {}


def test_pieces_may_come_in_any_order(gate: Gate) -> None:
    for stream in range(20):
        assert passes(gate, piece(stream, 1, 400, last=True))
        assert passes(gate, piece(stream, 0, 400))
    assert gate.alarms == {}


def test_of_a_stream_that_says_too_much_only_the_first_piece_passes(gate: Gate) -> None:
    """FLARE refuses it by that, and tells the sender."""
    assert passes(gate, piece(1, 0, said=250_000_000))
    assert not any(passes(gate, piece(1, number, said=250_000_000)) for number in range(1, 50))
    assert gate.alarms == {"north": (1, "sent 250,000,000 bytes, where at most 1,000 are expected")}
    assert not passes(gate, piece(2, 1, said=250_000_000)), "nor what has no first piece"
    assert gate.alarms["north"][0] == 2, "and every such stream is an alarm of its own"


def test_an_alarm_about_a_message_is_over_after_a_while(gate: Gate) -> None:
    gate.check(piece(1, 1, size=5000))
    gate.look()
    assert gate.alarms["north"][0] == 1
    gate._raised["north"] -= 60.0
    gate.look()
    assert gate.alarms == {}
    gate.check(piece(2, 1, size=5000))
    assert gate.alarms["north"][0] == 2


@pytest.mark.parametrize("last", [True, False])
def test_who_lies_about_the_size_or_begins_many_streams_is_stopped_all_the_same(gate: Gate, last: bool) -> None:
    """Streams with a gap are kept in memory by FLARE until they are whole: nothing of them is forgotten here."""
    taken = [passes(gate, piece(stream, 5, said=10, last=last)) for stream in range(100)]
    assert sum(taken) == 10
    taken = [passes(gate, piece(1000, number, said=10)) for number in range(100)]
    assert sum(taken) == 0


def test_nobody_fills_the_list_of_streams(gate: Gate) -> None:
    for stream in range(5000):
        gate.check(piece(stream, 1, size=1, said=10**9))
    assert len(gate._streams["north"]) <= 1000


def test_one_sites_excess_is_not_anothers(gate: Gate) -> None:
    assert not passes(gate, piece(1, 1, size=5000))
    other = piece(1, 0)
    other.set_prop(MessagePropKey.COMMON_NAME, "south")
    assert passes(gate, other)
    unknown = piece(1, 0, size=5000)
    unknown.set_prop(MessagePropKey.COMMON_NAME, "admin@demo.local")
    assert passes(gate, unknown), "the admin is not a site"


@pytest.mark.parametrize("header", [{StreamHeaderKey.SEQUENCE: "x"}, {StreamHeaderKey.SIZE: None}])
def test_what_is_no_stream_is_dropped(gate: Gate, header: dict[str, Any]) -> None:
    assert not passes(gate, piece(1, **header))


def test_a_site_cannot_end_the_job_for_all_with_an_error_of_its_own(gate: Gate) -> None:
    assert not passes(gate, piece(1, **{StreamHeaderKey.ERROR_TYPE: "BlobSizeError"}))


def connection(address: str) -> Any:
    return SimpleNamespace(conn=SimpleNamespace(get_conn_properties=lambda: {"peer_addr": address}))


def test_who_is_taken_over_once_has_moved_and_twice_is_two(gate: Gate) -> None:
    first, second, third = (connection(f"10.0.0.{number}:1") for number in (1, 2, 1))
    gate._take_over("north", first, second)
    assert gate.is_shut("north"), "until it is clear, nobody trains"
    assert not passes(gate, piece(1))
    gate._doubted.clear()  # the time is over, and nobody has come back
    assert passes(gate, piece(1))
    gate._take_over("north", first, second)
    gate._take_over("north", second, third)
    gate._doubted.clear()
    gate.look()
    assert gate.is_shut("north")
    assert not gate.is_shut("south")
    _, alarm = gate.alarms["north"]
    assert alarm.startswith("has a kit that is in use twice, from 10.0.0.2:1 and 10.0.0.1:1; neither trains until")


def test_who_is_admitted_comes_in_at_once(gate: Gate) -> None:
    """A site that is refused when it registers ends, so it must not be doubted for what is over."""
    first, second = connection("10.0.0.1:1"), connection("10.0.0.2:1")
    gate._take_over("north", first, second)
    gate._take_over("north", second, first)
    assert gate.is_shut("north")
    write_suspended(gate.suspended, {})
    gate.look()
    assert not gate.is_shut("north")
    assert passes(gate, piece(1))


def test_an_alarm_survives_a_restart_and_ends_by_the_operators_word(gate: Gate) -> None:
    gate._suspend("north", connection("a"), connection("b"))
    again = Gate(gate.sites, 1000, gate.suspended)
    again.look()
    assert again.is_shut("north")
    assert again.alarms == gate.alarms
    write_suspended(gate.suspended, {})
    again.look()
    assert not again.is_shut("north")
    assert again.alarms == {}


def test_a_damaged_file_lets_nobody_in_by_mistake(tmp_path: Path) -> None:
    (tmp_path / "suspended.json").write_text("{")
    with pytest.raises(FederationError, match=r"suspended\.json cannot be read"):
        read_suspended(tmp_path / "suspended.json")
