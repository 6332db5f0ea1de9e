"""A training process that misbehaves when a file tells it to: what a broken or hostile site could send.

The file named by FAULTS holds a word; it is read before every answer.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import torch

from fedgkd.clients import Tensors
from fedgkd.federation import worker
from fedgkd.federation.checks import METRICS
from fedgkd.federation.site import Site
from fedgkd.federation.wire import Message


def spoil(fault: str, answer: bytes) -> bytes:
    message = Message.from_bytes(answer)
    facts, tensors = dict(message.facts), dict(message.tensors)
    name = next(name for name in tensors if name.startswith("convs"))
    if fault == "nan":
        tensors[name] = torch.full_like(tensors[name], torch.nan)
    elif fault == "shape":
        tensors[name] = tensors[name][:, :1].clone()
    elif fault == "name":
        tensors["surprise"] = tensors.pop(name)
    elif fault == "norm":
        tensors[name] = torch.full_like(tensors[name], 1e9)
    elif fault == "heavy":
        tensors |= scaled_to(9_900.0, {key: tensor for key, tensor in tensors.items() if key.startswith("convs")})
    elif fault == "large":
        tensors["ballast"] = torch.zeros(250_000_000, dtype=torch.uint8)
    elif fault == "lies":
        tale = (torch.nan, 1.0)[facts["round"] % 2]
        tensors |= {key: torch.full_like(tensors[key], tale) for key in METRICS if key in tensors and key != "loss"}
    elif fault == "old":
        facts["round"] -= 1
    elif fault == "garbage":
        return b"not a message"
    return Message(facts, tensors).to_bytes()


def scaled_to(norm: float, tensors: Tensors) -> Tensors:
    """Random numbers in the place of the tensors; together they have that norm."""
    drawn = {name: torch.randn_like(tensor) for name, tensor in tensors.items()}
    before = math.hypot(*(float(tensor.norm()) for tensor in drawn.values()))
    return {name: tensor * (norm / before) for name, tensor in drawn.items()}


def ordered() -> str:
    path = Path(os.environ["FAULTS"])
    return path.read_text().strip() if path.exists() else ""


class FaultySite(Site):
    def answer(self, data: bytes) -> bytes:
        fault = ordered()
        if fault.startswith("slow"):
            time.sleep(float(fault.split()[1]))
        answer = super().answer(data)
        return spoil(fault, answer) if fault and "convs" in str(Message.from_bytes(answer).tensors.keys()) else answer


if __name__ == "__main__":
    if ordered() == "import":
        import no_such_module_at_all  # type: ignore[import-not-found]  # noqa: F401

    import fedgkd.federation.site

    fedgkd.federation.site.Site = FaultySite  # type: ignore[misc]
    worker.main()
