"""A training process that misbehaves when a file tells it to: what a broken or hostile site could send.

The file named by FAULTS holds a word; it is read before every answer.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch

from fedgkd.federation import worker
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
    elif fault == "old":
        facts["round"] -= 1
    elif fault == "garbage":
        return b"not a message"
    return Message(facts, tensors).to_bytes()


class FaultySite(Site):
    def answer(self, data: bytes) -> bytes:
        path = Path(os.environ["FAULTS"])
        fault = path.read_text().strip() if path.exists() else ""
        if fault.startswith("slow"):
            time.sleep(float(fault.split()[1]))
        answer = super().answer(data)
        return spoil(fault, answer) if fault and "convs" in str(Message.from_bytes(answer).tensors.keys()) else answer


if __name__ == "__main__":
    import fedgkd.federation.site

    fedgkd.federation.site.Site = FaultySite  # type: ignore[misc]
    worker.main()
