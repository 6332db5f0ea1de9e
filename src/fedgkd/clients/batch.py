"""A batch of clients: their graphs and their private state."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgkd.clients.graphs import GraphBatch
from fedgkd.data.graph import Graph
from fedgkd.randomness import stream

Tensors = dict[str, Tensor]
"""Named tensors; axis 0 is the client."""


class ClientBatch:
    """Clients that work side by side: all of a simulation, a bucket of similar size, or one real site.

    Args:
        ids: Numbers of the clients in the federation; they decide each client's random draws.
        graphs: Their graphs.
        seed: The run's seed.
        members: For a pool, which counts as one client, the nodes in it that each real client has.

    Attributes:
        state: Private tensors that stay with the clients from round to round (weights, optimiser moments).
        received: The whole models that this round's training started from.
        kept: The models that the clients keep as their best so far.
        round: The current round, from 1.
        seconds: Time spent so far in this round, by activity.
    """

    def __init__(
        self,
        ids: Sequence[int],
        graphs: Sequence[Graph],
        seed: int,
        device: torch.device | str = "cpu",
        members: Sequence[NDArray[np.int64]] | None = None,
    ) -> None:
        self.ids = tuple(ids)
        self.graph = GraphBatch(graphs, device, members)
        self.seed = seed
        self.state: Tensors = {}
        self.received: Tensors = {}
        self.kept: Tensors = {}
        self.round = 0
        self.seconds: dict[str, float] = defaultdict(float)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def device(self) -> torch.device:
        return self.graph.device

    def streams(self, purpose: str) -> list[np.random.Generator]:
        """A random stream per client for this round."""
        return [stream(self.seed, purpose, client, self.round) for client in self.ids]

    @contextmanager
    def timed(self, activity: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[activity] += time.perf_counter() - start

    def select(self, rows: Sequence[int]) -> ClientBatch:
        """A batch of some of these clients with a copy of their state."""
        part = ClientBatch(
            [self.ids[row] for row in rows], [self.graph.graphs[row] for row in rows], self.seed, self.device
        )
        part.state = {name: tensor[list(rows)] for name, tensor in self.state.items()}
        part.round = self.round
        # Their private state may be laid out by it.
        part.graph.sparse = self.graph.sparse
        return part

    def update(self, rows: Sequence[int], part: ClientBatch) -> None:
        """Take over the state of a batch that :meth:`select` made; the others stay as they are."""
        for name, tensor in part.state.items():
            self.state[name][list(rows)] = tensor


def all_finite(tensors: Tensors) -> Tensor:
    """Which clients' entries are all finite: a sum is finite only if they are, and far cheaper than looking at each."""
    return torch.stack([tensor.reshape(len(tensor), -1).sum(1).isfinite() for tensor in tensors.values()]).all(0)
