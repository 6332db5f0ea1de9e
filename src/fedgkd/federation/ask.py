"""Put a question to a site's training process, from the job process that got it off the network."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from fedgkd.federation.wire import FAILED, TooLarge, receive, send

_ATTEMPTS = 3
_UNWANTED = "the job ended first"
_LOOK_UP = 0.2
"""Seconds between two looks at whether an answer is still wanted."""


class NoAnswer(Exception):
    """Why there is none, in a sentence."""


def ask(
    address: str,
    question: bytes,
    wanted: Callable[[], bool] = lambda: True,
    patience: float = 60.0,
    largest: int | None = None,
) -> bytes:
    """The training process's answer, however long it takes; it is asked again if it dies over the question.

    A deadline is the coordinator's affair: a site that is late asks for new work only once it is done, and is known by
    that to be back.

    Args:
        largest: Bytes that question and answer may have.

    Raises:
        NoAnswer: If it is no longer wanted, the process is not there for so many seconds, died three times, or refuses,
            or if either is too large.
    """
    if largest is not None and len(question) > largest:
        raise NoAnswer(f"the coordinator sent {len(question):,} bytes, where at most {largest:,} are expected")
    until = time.monotonic() + patience
    deaths = 0
    while wanted():
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(address)
            except OSError:  # it is not up yet, or is being started again
                if time.monotonic() > until:
                    raise NoAnswer(f"there has been no training process for {patience:g} s") from None
                time.sleep(_LOOK_UP)
                continue
            try:
                send(connection, question)
                return _answer(connection, wanted, largest)
            except ConnectionError:
                deaths += 1
                until = time.monotonic() + patience
                if deaths == _ATTEMPTS:
                    raise NoAnswer(f"the training process died {deaths} times over one round") from None
    raise NoAnswer(_UNWANTED)


def _answer(connection: socket.socket, wanted: Callable[[], bool], largest: int | None) -> bytes:
    connection.settimeout(_LOOK_UP)
    while wanted():
        try:
            connection.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            continue
        connection.settimeout(None)
        try:
            answer = receive(connection) if largest is None else receive(connection, largest + len(FAILED))
        except TooLarge as problem:
            raise NoAnswer(f"the training process wants to send {problem}") from problem
        if answer[:1] == FAILED:
            raise NoAnswer(answer[1:].decode(errors="replace"))
        return answer[1:]
    raise NoAnswer(_UNWANTED)
