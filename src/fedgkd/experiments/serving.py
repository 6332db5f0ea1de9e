"""The server's part of a round, the same in a simulation and in a real federation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from fedgkd.algorithms import Algorithm, ServerRound
from fedgkd.clients import Tensors
from fedgkd.collaboration import Mixing, mix
from fedgkd.engines.in_process import take


def serve(
    algorithm: Algorithm, uploads: Tensors, present: Sequence[int], round_: int, models: Tensors, memory: Tensors
) -> tuple[Mixing, Tensors]:
    """The server step over those present: what it decided, and every client's next model.

    Args:
        uploads: Of those present, in their order.
        models: The shared weights that the server holds for every client; those who are absent keep theirs.
        memory: What the server kept from its last round.
    """
    server = ServerRound(round_, tuple(present), take(models, present), memory)
    mixing = algorithm.server_step(uploads, server)
    # What it keeps of the uploads may be the clients' own memory, which they will change.
    mixing = replace(mixing, memory={name: tensor.clone() for name, tensor in mixing.memory.items()})
    shared = {name: uploads[name] for name in algorithm.shared}
    device = next((tensor.device for tensor in shared.values()), mixing.weights.device)
    mixed = mix(mixing.weights.to(device), shared)
    return mixing, {name: _with_rows(models[name], present, tensor) for name, tensor in mixed.items()}


def _with_rows(tensor: Tensor, rows: Sequence[int], new: Tensor) -> Tensor:
    """``tensor`` with ``new`` in those rows; no copy if that is all of them."""
    if len(rows) == len(tensor):
        return new
    changed = tensor.clone()
    changed[list(rows)] = new
    return changed
