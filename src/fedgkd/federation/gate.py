"""At the coordinator's server: how much a site may have under way, and that nobody is there twice.

NVIDIA FLARE keeps in memory whatever a site sends, up to gigabytes, and takes two processes with the same certificate
for one site that has two connections. Here every message of a site is looked at before it is kept or passed on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, MessagePropKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.drivers import aio_http_driver
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.sfm.sfm_endpoint import SfmEndpoint
from nvflare.fuel.f3.streaming.stream_const import STREAM_CHANNEL, STREAM_DATA_TOPIC, StreamDataType, StreamHeaderKey
from nvflare.fuel.f3.streaming.stream_types import BlobSizeError

from fedgkd.errors import shortened
from fedgkd.federation.names import LOGGER
from fedgkd.federation.suspended import read_suspended, write_suspended

FRAME = 4 << 20
"""Bytes that come in one piece at most; FLARE's own pieces have a quarter of it. A longer one ends its connection."""
_STALE = 300.0
"""Seconds after which FLARE itself gives up a stream that does not go on."""
_MOST_STREAMS = 1000
_HEARD = 10.0
"""Seconds after which an alarm about one message is over: the coordinator has said it, and the site may do better."""
_DOUBT = 20.0
"""Seconds in which a process whose connection was taken over would come back: FLARE's tries again after one."""

log = logging.getLogger(LOGGER)


@dataclass
class _Stream:
    """What has come of a stream so far."""

    size: int = 0
    pieces: int = 0
    last: int | None = None
    refused: bool = False
    touched: float = 0.0

    def add(self, size: int, number: int, is_last: bool) -> None:
        self.size += size
        self.pieces += 1
        self.last = number if is_last else self.last
        self.touched = time.monotonic()

    @property
    def is_whole(self) -> bool:
        return self.last is not None and self.pieces > self.last


@dataclass
class Gate:
    """Lets messages through, or not.

    Args:
        sites: Whose messages are looked at.
        largest: Bytes that a message of a site, and all that it has under way, may have.
        suspended: File with the sites whose kit was used twice, which the operator edits by 'admit'.

    Attributes:
        alarms: By site: which alarm it is, counted from 1, and the end of a sentence that starts with the site's name.
    """

    sites: Sequence[str]
    largest: int
    suspended: Path
    alarms: dict[str, tuple[int, str]] = field(default_factory=dict)
    _streams: dict[str, dict[Any, _Stream]] = field(default_factory=dict)
    _doubted: dict[str, float] = field(default_factory=dict)
    _shut: Mapping[str, str] = field(default_factory=dict)
    _raised: dict[str, float] = field(default_factory=dict)
    _count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def install(self, cell: Any) -> None:
        aio_http_driver.MAX_FRAME_SIZE = FRAME
        cell.add_incoming_filter(channel="*", topic="*", cb=self.check)
        add = SfmEndpoint.add_connection

        def add_connection(endpoint: SfmEndpoint, connection: Any) -> None:
            # FLARE closes the connection that there is: with two processes of the same name, theirs in turn.
            for other in list(endpoint.connections):
                self._take_over(endpoint.endpoint.name, other, connection)
            add(endpoint, connection)

        SfmEndpoint.add_connection = add_connection

    def is_shut(self, site: str) -> bool:
        """Whether the site takes no part for now."""
        return site in self._shut or time.monotonic() < self._doubted.get(site, 0.0)

    def check(self, message: Message) -> Message | None:
        """FLARE's filter: None lets the message through."""
        site = message.get_prop(MessagePropKey.COMMON_NAME)
        if site not in self.sites:
            return None
        if self.is_shut(site):
            return make_reply(ReturnCode.AUTHENTICATION_ERROR)
        if message.get_header(StreamHeaderKey.ERROR_TYPE) == BlobSizeError.__name__:
            # FLARE's server would end the job for everybody: a site that finds ours too large stays behind alone.
            return make_reply(ReturnCode.INVALID_REQUEST)
        data = (message.get_header(MessageHeaderKey.CHANNEL), message.get_header(MessageHeaderKey.TOPIC))
        if data == (STREAM_CHANNEL, STREAM_DATA_TOPIC) and not self._is_bounded(site, message):
            return make_reply(ReturnCode.MSG_TOO_BIG)
        return None

    # --- how much ----------------------------------------------------------------------------------------------

    def _is_bounded(self, site: str, message: Message) -> bool:
        size, number = len(message.payload or b""), message.get_header(StreamHeaderKey.SEQUENCE)
        said = message.get_header(StreamHeaderKey.SIZE, 0)
        if not isinstance(number, int) or not isinstance(said, int):
            return False
        key = (message.get_header(MessageHeaderKey.ORIGIN), message.get_header(StreamHeaderKey.STREAM_ID))
        with self._lock:
            now = time.monotonic()
            under_way = self._streams.setdefault(site, {})
            for old in [old for old, stream in under_way.items() if stream.touched < now - _STALE]:
                del under_way[old]
            if len(under_way) >= _MOST_STREAMS and key not in under_way:
                return False
            stream = under_way.setdefault(key, _Stream())
            total = sum(other.size for other in under_way.values()) + size
            if max(said, total) > self.largest:
                if not stream.refused:
                    self._raise(site, f"sent {max(said, total):,} bytes, where at most {self.largest:,} are expected")
                stream.refused, stream.touched = True, now
                # FLARE refuses a stream by the size that its first piece says, and tells the sender so.
                return number == 0 and said > self.largest and not stream.size
            stream.add(size, number, message.get_header(StreamHeaderKey.DATA_TYPE) == StreamDataType.FINAL)
            if stream.is_whole:
                del under_way[key]
        return True

    def _raise(self, site: str, sentence: str) -> None:
        self._count += 1
        self._raised[site] = time.monotonic()
        self.alarms[site] = (self._count, sentence)

    # --- from where --------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Take in what the operator has decided, and drop alarms that the coordinator has heard long ago."""
        before, self._shut = self._shut, read_suspended(self.suspended)
        for site in before.keys() - self._shut.keys():
            self._doubted.pop(site, None)  # the operator has decided: whoever comes in now is not doubted for long ago
        over = {site for site in self.alarms if time.monotonic() > self._raised[site] + _HEARD}
        for site in before.keys() | self._shut.keys() | over:
            if site not in self._shut:
                self.alarms.pop(site, None)
            elif self.alarms.get(site, (0, ""))[1] != self._shut[site]:
                self._raise(site, self._shut[site])

    def _take_over(self, site: str, before: Any, after: Any) -> None:
        if site not in self.sites or site in self._shut:
            return
        if time.monotonic() < self._doubted.get(site, 0.0):
            self._suspend(site, before, after)
            return
        self._doubted[site] = time.monotonic() + _DOUBT
        log.warning(
            "%s has come in from %s while it was connected from %s; it takes no part for %g s, in which we see "
            "whether its kit is in use twice",
            site,
            _address(after),
            _address(before),
            _DOUBT,
        )

    def _suspend(self, site: str, *connections: Any) -> None:
        addresses = " and ".join(_address(one) for one in connections)
        sentence = (
            f"has a kit that is in use twice, from {addresses}; neither trains until the operator has decided "
            f"('fedgkd federation admit {site}' at the coordinator, once one of them has ended)"
        )
        write_suspended(self.suspended, {**read_suspended(self.suspended), site: sentence})
        self.look()
        log.error("alarm: %s %s", site, sentence)


def _address(connection: Any) -> str:
    return shortened(connection.conn.get_conn_properties().get(DriverParams.PEER_ADDR.value, "an unknown address"))
