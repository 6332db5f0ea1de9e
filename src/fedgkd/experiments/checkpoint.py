"""Checkpoints that cost next to nothing and survive a kill at any moment.

Two slots are overwritten in turn, so the previous checkpoint stays whole while the next one is written. Overwriting
pages that a file already has is several times cheaper than writing a new file. A slot counts only together with its
small description, which is put in place last and holds a checksum of both.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedgkd.atomic import atomic_write_text
from fedgkd.clients import Tensors
from fedgkd.errors import RunError, quoted

_DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64", torch.bool: "BOOL"}
_SLOTS = 2


@dataclass(frozen=True)
class Stored:
    """A checkpoint read back: named tensors and the facts beside them."""

    serial: int
    tensors: Tensors
    facts: dict[str, Any]
    slot: int


class Slots:
    """Two files in a folder that take turns; ``name`` tells different kinds apart."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._newest: int | None = None

    def write(self, serial: int, tensors: Tensors, facts: Mapping[str, Any]) -> None:
        """Store ``tensors`` and what JSON can hold under a serial number that grows with every call."""
        slot = self._free_slot(serial)
        description = {"serial": serial, "facts": facts}
        # Both take their time, and neither holds up the other.
        with ThreadPoolExecutor(1) as beside:
            checksum = beside.submit(_checksum, tensors, description)
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                # Whatever this slot held is void from here on.
                self._description(slot).unlink(missing_ok=True)
                write_safetensors(self._tensors(slot), tensors)
            except OSError as error:
                where = self._tensors(slot)
                raise RunError(f"cannot write the checkpoint {where}: {error.strerror or error}") from error
            text = json.dumps(description | {"checksum": checksum.result()}, allow_nan=False)
        atomic_write_text(self._description(slot), text, RunError)
        self._newest = slot

    def _free_slot(self, serial: int) -> int:
        """Any slot but the one that holds the newest checkpoint, or the one that was read back."""
        if self._newest is None:
            stored = self.newest_first([])
            self._newest = stored[0].slot if stored else (serial + 1) % _SLOTS
        return (self._newest + 1) % _SLOTS

    def newest_first(self, problems: list[str]) -> list[Stored]:
        """Every whole checkpoint; ``problems`` gets a sentence for each one that is not."""
        found = (self._read(slot, problems) for slot in range(_SLOTS))
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
        """Go on from that checkpoint: the next to be written takes the other slot, whatever is there."""
        self._newest = stored.slot

    def _read(self, slot: int, problems: list[str]) -> Stored | None:
        from safetensors import SafetensorError
        from safetensors.torch import load

        if not self._description(slot).exists():
            return None
        try:
            description = json.loads(self._description(slot).read_text(encoding="utf-8"))
            checksum = description.pop("checksum")
            # Not mapped into memory: the file will be overwritten while the tensors are in use.
            tensors = load(self._tensors(slot).read_bytes())
            if _checksum(tensors, description) == checksum:
                return Stored(description["serial"], tensors, description["facts"], slot)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError):
            pass  # whatever stands there is not what was written
        problems.append(f"the checkpoint {self._tensors(slot).stem} is damaged")
        return None

    def _tensors(self, slot: int) -> Path:
        return self._folder / f"{self._name}-{slot}.safetensors"

    def _description(self, slot: int) -> Path:
        return self._folder / f"{self._name}-{slot}.json"


def write_safetensors(path: Path, tensors: Tensors) -> None:
    """Write the safetensors format over whatever the file holds, in place.

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
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        position = _write_at(handle, len(text).to_bytes(8, "little") + text, 0)
        for array in arrays.values():
            position = _write_at(handle, array.reshape(-1).view(np.uint8).data, position)
        os.ftruncate(handle, position)
    finally:
        os.close(handle)


def _write_at(handle: int, data: bytes | memoryview, position: int) -> int:
    """All of ``data``: one call writes at most 2 GiB, or less on a disk that is filling up."""
    view = memoryview(data)
    while view:
        written = os.pwrite(handle, view, position)
        position += written
        view = view[written:]
    return position


def _checksum(tensors: Tensors, description: Mapping[str, Any]) -> int:
    """The sum of all bytes read as 64-bit words: at memory speed, and enough to notice a torn or damaged file."""
    total = zlib.crc32(json.dumps(description).encode())
    for tensor in tensors.values():
        raw = tensor.detach().cpu().contiguous().numpy().reshape(-1).view(np.uint8)
        whole = len(raw) // 8 * 8
        total += int(raw[:whole].view(np.uint64).sum(dtype=np.uint64)) + int(raw[whole:].sum(dtype=np.uint64))
    return total % 2**64
