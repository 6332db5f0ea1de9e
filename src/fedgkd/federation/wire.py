"""What travels between the parties: named tensors with a few facts, as safetensors bytes. Nothing in it can run.

The job process at a site passes such bytes on without looking at them, so nothing here imports torch before it must.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedgkd.clients import Tensors

_FACTS = "fedgkd"
_LENGTH = 8
OK, FAILED = b"\x01", b"\x00"
"""First byte of what a training process answers: a message follows, or a sentence about what went wrong."""
_LARGEST = 1 << 34
"""Bytes of a message at most where nothing is known of it: a wrong length is noticed."""


class TooLarge(Exception):
    """What the other side announces is not taken into memory."""


@dataclass(frozen=True)
class Message:
    """Tensors of one site, axis 0 of length 1, and facts that JSON can hold."""

    facts: Mapping[str, Any]
    tensors: Tensors

    def to_bytes(self) -> bytes:
        from safetensors.torch import save

        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()}
        return save(tensors, metadata={_FACTS: json.dumps(self.facts)})

    @classmethod
    def from_bytes(cls, data: bytes) -> Message:
        """
        Raises:
            ValueError: If the bytes are anything but a message.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            tensors = load(data)
            header = json.loads(data[_LENGTH : _LENGTH + int.from_bytes(data[:_LENGTH], "little")])
            facts = json.loads(header["__metadata__"][_FACTS])
        except (SafetensorError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ValueError("not a message of fedgkd") from error
        if not isinstance(facts, dict):
            raise ValueError("not a message of fedgkd")
        return cls(facts, tensors)


def answered_file(address: Path) -> Path:
    """What a training process makes beside its socket once it has answered a question."""
    return address.with_name("answered")


def largest_file(address: Path) -> Path:
    """Where it says, before there is a socket, how many bytes a question or an answer may have."""
    return address.with_name("largest")


def send(connection: socket.socket, data: bytes) -> None:
    """A length and the bytes, over a local socket."""
    connection.sendall(len(data).to_bytes(_LENGTH, "little"))
    if data:  # who has all it waits for may be gone already, and to send it nothing would be an error
        connection.sendall(data)


def receive(connection: socket.socket, largest: int = _LARGEST) -> bytes:
    """The counterpart of :func:`send`.

    Raises:
        ConnectionError: If the other side went away.
        TooLarge: If it wants to send more than ``largest`` bytes.
    """
    length = int.from_bytes(_exactly(connection, _LENGTH), "little")
    if length > largest:
        raise TooLarge(f"{length:,} bytes, where at most {largest:,} are expected")
    return _exactly(connection, length)


def _exactly(connection: socket.socket, length: int) -> bytes:
    data = bytearray(length)
    view = memoryview(data)
    while view:
        got = connection.recv_into(view)
        if not got:
            raise ConnectionError("the other side went away")
        view = view[got:]
    return bytes(data)
