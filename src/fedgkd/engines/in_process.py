"""All clients in this process, batched; clients of similar size share a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from fedgkd.clients import ClientBatch, Tensors
from fedgkd.data.graph import Graph
from fedgkd.data.pooling import Pool
from fedgkd.engines.memory import reuse_freed_memory

Task = Callable[[ClientBatch, Tensors], Tensors]

# Padding may at most double the work of a batch's smallest client.
_LARGEST_RATIO = 2.0


class InProcessEngine:
    """Runs a task for a cohort of clients and gathers what they return.

    Args:
        graphs: One graph per client; or a pool of all clients' nodes, which is one client to the tasks.

    Attributes:
        bytes_down, bytes_up: What the last task moved, per client of the cohort.
        seconds: Time of the last task by activity, over all batches.
    """

    def __init__(self, graphs: Sequence[Graph] | Pool, seed: int, device: torch.device | str = "cpu") -> None:
        reuse_freed_memory()
        if isinstance(graphs, Pool):
            self.batches = [ClientBatch([0], [graphs.graph], seed, device, graphs.members)]
        else:
            buckets = size_buckets([graph.num_nodes for graph in graphs])
            self.batches = [ClientBatch(ids, [graphs[i] for i in ids], seed, device) for ids in buckets]
        self.bytes_down = 0
        self.bytes_up = 0
        self.seconds: Counter[str] = Counter()

    def run(self, task: Task, downloads: Tensors, cohort: Sequence[int], round_: int = 0) -> Tensors:
        """Run ``task`` for the clients of ``cohort``; row k of ``downloads`` and of the result belongs to cohort[k]."""
        place = {client: k for k, client in enumerate(cohort)}
        results: list[Tensors] = []
        order: list[int] = []
        self.seconds = Counter()
        for batch in self.batches:
            rows = [row for row, client in enumerate(batch.ids) if client in place]
            if not rows:
                continue
            everyone = len(rows) == len(batch)
            part = batch if everyone else batch.select(rows)
            part.round = round_
            part.seconds.clear()
            positions = [place[client] for client in part.ids]
            results.append(task(part, take(downloads, positions)))
            order.extend(positions)
            self.seconds.update(part.seconds)
            if not everyone:
                batch.update(rows, part)
        uploads = gather(results, order)
        self.bytes_down, self.bytes_up = bytes_per_client(downloads), bytes_per_client(uploads)
        return uploads

    def collect(self, read: Callable[[ClientBatch], Tensors]) -> Tensors:
        """Something of all clients, in the order of their numbers: for checkpoints and files of a simulation."""
        return gather([read(batch) for batch in self.batches], [i for batch in self.batches for i in batch.ids])

    def restore(self, write: Callable[[ClientBatch], Tensors], stored: Tensors) -> None:
        """The opposite of :meth:`collect`."""
        for batch in self.batches:
            rows = take(stored, batch.ids)
            write(batch).update({name: tensor.clone().to(batch.device) for name, tensor in rows.items()})


def size_buckets(sizes: Sequence[int]) -> list[list[int]]:
    """Clients grouped so that none is padded to more than twice its size; each group in the clients' order."""
    order = np.argsort(-np.asarray(sizes), kind="stable")
    buckets: list[list[int]] = []
    for client in order.tolist():
        if buckets and sizes[buckets[-1][0]] <= _LARGEST_RATIO * sizes[client]:
            buckets[-1].append(client)
        else:
            buckets.append([client])
    return [sorted(bucket) for bucket in buckets]


def take(tensors: Tensors, rows: Sequence[int]) -> Tensors:
    """Those rows of every tensor; no copy if they are all rows in order."""
    return {
        name: tensor if list(rows) == list(range(len(tensor))) else tensor[list(rows)]
        for name, tensor in tensors.items()
    }


def gather(parts: Sequence[Tensors], order: Sequence[int]) -> Tensors:
    """Concatenate along the clients and sort them by ``order``."""
    if not parts:
        return {}
    if len(parts) == 1 and list(order) == sorted(order):
        return parts[0]
    back = torch.tensor(np.argsort(order))
    return {name: torch.cat([part[name] for part in parts])[back.to(parts[0][name].device)] for name in parts[0]}


def bytes_per_client(tensors: Tensors) -> int:
    """What one client's row of these tensors takes on the wire."""
    return sum(_row_bytes(tensor) for tensor in tensors.values())


def _row_bytes(tensor: Tensor) -> int:
    return tensor[0].numel() * tensor.element_size() if len(tensor) else 0
