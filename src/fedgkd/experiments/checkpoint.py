"""Checkpoints that cost next to nothing and survive a kill at any moment.

Two slots or more are overwritten in turn, so the previous checkpoint stays whole while the next one is written.
Overwriting pages that a file already has is several times cheaper than writing a new file. A slot counts only together
with its small description, which is put in place when the tensors are on the disk, and holds the SHA-256 of both.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedgkd.atomic import atomic_write_text, sync_folder
from fedgkd.clients import Tensors
from fedgkd.errors import RunError, quoted
from fedgkd.parsing import parse_json

_DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64", torch.bool: "BOOL"}

Bytes = bytes | memoryview


@dataclass(frozen=True)
class Stored:
    """A checkpoint read back: named tensors and the facts beside them."""

    serial: int
    tensors: Tensors
    facts: dict[str, Any]
    slot: int


class Slots:
    """Some files in a folder that take turns; ``name`` tells different kinds apart.

    With more than two, it is possible to go back further than one checkpoint.
    """

    def __init__(self, folder: Path, name: str, count: int = 2) -> None:
        self._folder = folder
        self._name = name
        self._count = count
        self._newest: int | None = None

    def write(self, serial: int, tensors: Tensors, facts: Mapping[str, Any]) -> None:
        """Store ``tensors`` and what JSON can hold under a serial number that grows with every call."""
        slot = self._free_slot(serial)
        description = {"serial": serial, "facts": facts}
        pieces = _safetensors(tensors)
        # Both take their time, and neither holds up the other.
        with ThreadPoolExecutor(1) as beside:
            digest = beside.submit(_digest, description, pieces)
            try:
                if not self._folder.is_dir():
                    self._folder.mkdir()  # not those above it: a run whose folder was removed must not make it again
                    sync_folder(self._folder.parent)
                # Whatever this slot held is void from here on.
                self._description(slot).unlink(missing_ok=True)
                _overwrite(self._tensors(slot), pieces)
            except OSError as error:
                where = self._tensors(slot)
                raise RunError(f"cannot write the checkpoint {where}: {error.strerror or error}") from error
            text = json.dumps(description | {"sha256": digest.result()}, allow_nan=False)
        atomic_write_text(self._description(slot), text, RunError, make_parents=False)
        self._newest = slot

    def _free_slot(self, serial: int) -> int:
        """Any slot but the one that holds the newest checkpoint, or the one that was read back."""
        if self._newest is None:
            stored = self.newest_first([])
            self._newest = stored[0].slot if stored else (serial + 1) % self._count
        return (self._newest + 1) % self._count

    def newest_first(self, problems: list[str]) -> list[Stored]:
        """Every whole checkpoint; ``problems`` gets a sentence for each one that is not."""
        found = (self._read(slot, problems) for slot in range(self._count))
        return sorted((stored for stored in found if stored), key=lambda stored: -stored.serial)

    def read(self, serial: int) -> Stored | None:
        """The checkpoint with that serial number, if it is still there and whole; the next to be written spares it.

        A newer one may lie beside it, left by a kill before anything came to refer to it.
        """
        found = next((stored for stored in self.newest_first([]) if stored.serial == serial), None)
        if found is not None:
            self.spare(found)
        return found

    def spare(self, stored: Stored) -> None:
        """Go on from that checkpoint: the next to be written takes another slot, whatever is there."""
        self._newest = stored.slot

    def go_back(self, stored: Stored) -> None:
        """Go on from that checkpoint, and never again from one that is newer."""
        for newer in self.newest_first([]):
            if newer.serial > stored.serial:
                self._description(newer.slot).unlink(missing_ok=True)
        self.spare(stored)

    def _read(self, slot: int, problems: list[str]) -> Stored | None:
        from safetensors import SafetensorError
        from safetensors.torch import load

        if not self._description(slot).exists():
            return None
        try:
            description = parse_json(self._description(slot).read_bytes())
            expected = {name: description.pop(name) for name in ("sha256", "checksum") if name in description}
            # Not mapped into memory: the file will be overwritten while the tensors are in use.
            data = self._tensors(slot).read_bytes()
            if "sha256" in expected and _digest(description, [data]) != expected["sha256"]:
                raise ValueError
            tensors = load(data)
            if type(description["serial"]) is not int or not isinstance(description["facts"], dict):
                raise ValueError
            if "sha256" in expected or _sum_of_older_versions(tensors, description) == expected["checksum"]:
                return Stored(description["serial"], tensors, description["facts"], slot)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError):
            pass  # whatever stands there is not what was written
        problems.append(f"the checkpoint {self._tensors(slot).stem} is damaged")
        return None

    def _tensors(self, slot: int) -> Path:
        return self._folder / f"{self._name}-{slot}.safetensors"

    def _description(self, slot: int) -> Path:
        return self._folder / f"{self._name}-{slot}.json"


def _safetensors(tensors: Tensors) -> list[Bytes]:
    """The pieces of a file in the safetensors format.

    The library's own writer always makes a new file, and fresh pages cost most of the time.
    """
    arrays = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in sorted(tensors.items())}
    header: dict[str, Any] = {}
    offset = 0
    for name, array in arrays.items():
        if tensors[name].dtype not in _DTYPES:
            raise RunError(f"a checkpoint cannot hold the tensor {quoted(name)} of type {tensors[name].dtype}")
        header[name] = {
            "dtype": _DTYPES[tensors[name].dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    contents = (array.reshape(-1).view(np.uint8).data for array in arrays.values())
    return [len(text).to_bytes(8, "little") + text, *contents]


def _overwrite(path: Path, pieces: Sequence[Bytes]) -> None:
    """Write over whatever the file holds, in place, and return when that is on the disk."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        position = 0
        for piece in pieces:
            position = _write_at(handle, piece, position)
        os.ftruncate(handle, position)
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_at(handle: int, data: Bytes, position: int) -> int:
    """All of ``data``: one call writes at most 2 GiB, or less on a disk that is filling up."""
    view = memoryview(data)
    while view:
        written = os.pwrite(handle, view, position)
        position += written
        view = view[written:]
    return position


def _digest(description: Mapping[str, Any], pieces: Sequence[Bytes]) -> str:
    """The SHA-256 of a checkpoint: of its description, and of every byte of its file."""
    digest = hashlib.sha256(json.dumps(description).encode())
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _sum_of_older_versions(tensors: Tensors, description: Mapping[str, Any]) -> int:
    """What earlier versions wrote down instead: the sum of all bytes read as 64-bit words."""
    total = zlib.crc32(json.dumps(description).encode())
    for tensor in tensors.values():
        raw = tensor.numpy().reshape(-1).view(np.uint8)
        whole = len(raw) // 8 * 8
        total += int(raw[:whole].view(np.uint64).sum(dtype=np.uint64)) + int(raw[whole:].sum(dtype=np.uint64))
    return total % 2**64
