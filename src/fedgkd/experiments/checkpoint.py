"""Checkpoints that cost next to nothing and survive a kill at any moment.

Two slots are overwritten in turn, so the previous checkpoint stays whole while the next one is written. Overwriting
pages that a file already has is several times cheaper than writing a new file. A slot counts only together with its
small description, which is put in place last and holds a checksum of the tensors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedgkd.atomic import atomic_write_text
from fedgkd.clients import Tensors
from fedgkd.errors import RunError

_DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64", torch.bool: "BOOL"}
_SLOTS = 2


@dataclass(frozen=True)
class Stored:
    """A checkpoint read back: named tensors and the facts beside them."""

    tensors: Tensors
    facts: dict[str, Any]


class Slots:
    """Two files in a folder that take turns; ``name`` tells different kinds apart."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name

    def write(self, serial: int, tensors: Tensors, facts: Mapping[str, Any]) -> None:
        """Store ``tensors`` under a serial number that grows with every call."""
        slot = serial % _SLOTS
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            # Whatever this slot held is void from here on.
            self._facts(slot).unlink(missing_ok=True)
            checksum = write_safetensors(self._tensors(slot), tensors)
        except OSError as error:
            raise RunError(f"cannot write the checkpoint {self._tensors(slot)}: {error.strerror or error}") from error
        description = {"serial": serial, "checksum": checksum, **facts}
        atomic_write_text(self._facts(slot), json.dumps(description), RunError)

    def read(self) -> tuple[Stored | None, list[str]]:
        """The newest whole checkpoint, and a sentence for every newer one that was not usable."""
        problems: list[str] = []
        found = [self._description(slot, problems) for slot in range(_SLOTS)]
        for description in sorted((d for d in found if d), key=lambda d: -int(d["serial"])):
            stored = self._load(description, problems)
            if stored is not None:
                return stored, problems
        return None, problems

    def read_serial(self, serial: int) -> Stored | None:
        """The checkpoint with that serial number, if it is still there and whole."""
        problems: list[str] = []
        description = self._description(serial % _SLOTS, problems)
        if description is None or description["serial"] != serial:
            return None
        return self._load(description, problems)

    def _description(self, slot: int, problems: list[str]) -> dict[str, Any] | None:
        path = self._facts(slot)
        try:
            description = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            problems.append(f"{path.name} is damaged")
            return None
        if not isinstance(description, dict) or not isinstance(description.get("serial"), int):
            problems.append(f"{path.name} is damaged")
            return None
        return description

    def _load(self, description: dict[str, Any], problems: list[str]) -> Stored | None:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = self._tensors(description["serial"] % _SLOTS)
        try:
            tensors = load_file(path)
        except (OSError, SafetensorError):
            problems.append(f"{path.name} is damaged")
            return None
        if _checksum(tensors) != description.get("checksum"):
            problems.append(f"{path.name} is damaged")
            return None
        return Stored(tensors, description)

    def _tensors(self, slot: int) -> Path:
        return self._folder / f"{self._name}-{slot}.safetensors"

    def _facts(self, slot: int) -> Path:
        return self._folder / f"{self._name}-{slot}.json"


def write_safetensors(path: Path, tensors: Tensors) -> int:
    """Write the safetensors format over whatever the file holds, in place; returns the checksum of the tensors.

    The library's own writer always makes a new file, and fresh pages cost most of the time.
    """
    arrays = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in sorted(tensors.items())}
    header: dict[str, Any] = {}
    offset = 0
    for name, array in arrays.items():
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
    return _checksum(tensors)


def _write_at(handle: int, data: bytes | memoryview, position: int) -> int:
    """All of ``data``: one call writes at most 2 GiB, or less on a disk that is filling up."""
    view = memoryview(data)
    while view:
        written = os.pwrite(handle, view, position)
        position += written
        view = view[written:]
    return position


def _checksum(tensors: Tensors) -> int:
    """The sum of all bytes read as 64-bit words: at memory speed, and enough to notice a torn or damaged file."""
    total = 0
    for tensor in tensors.values():
        raw = tensor.detach().cpu().contiguous().numpy().reshape(-1).view(np.uint8)
        whole = len(raw) // 8 * 8
        total += int(raw[:whole].view(np.uint64).sum(dtype=np.uint64)) + int(raw[whole:].sum(dtype=np.uint64))
    return total % 2**64
