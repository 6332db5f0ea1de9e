"""All clients in this process, batched; clients of similar size share a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from fedgkd.clients import ClientBatch, Tensors
from fedgkd.clients.graphs import are_sparse
from fedgkd.data.graph import Graph
from fedgkd.data.pooling import Pool
from fedgkd.engines.memory import reuse_freed_memory

Task = Callable[[ClientBatch, Tensors], Tensors]

# Padding may at most double the work of a batch's smallest client.
_LARGEST_RATIO = 2.0

# What a batch works on should stay in the processor's cache from one step to the next.
_BATCH_BYTES = 16 << 20


class InProcessEngine:
    """Runs a task for a cohort of clients and gathers what they return.

    Batches are small enough for the cache and run side by side, each on one thread: two threads that share every single
    operation would wait for each other thousands of times a second.

    Args:
        graphs: One graph per client; or a pool of all clients' nodes, which is one client to the tasks.
        threads: Threads to use; fewer batches than threads get several each.
        node_bytes, client_bytes: Roughly what a task works on for each node and for each client.

    Attributes:
        bytes_down, bytes_up: What the last task moved, per client of the cohort.
        seconds: Time of the last task by activity; those of batches that ran side by side count once.
    """

    def __init__(
        self,
        graphs: Sequence[Graph] | Pool,
        seed: int,
        device: torch.device | str = "cpu",
        threads: int = 1,
        node_bytes: int = 0,
        client_bytes: int = 0,
    ) -> None:
        reuse_freed_memory()
        if isinstance(graphs, Pool):
            self.batches = [ClientBatch([0], [graphs.graph], seed, device, graphs.members)]
        else:
            sizes = [graph.num_nodes for graph in graphs]
            groups = size_buckets(sizes)
            if torch.device(device).type == "cpu":
                work = [client_bytes + node_bytes * size for size in sizes]
                groups = [part for bucket in groups for part in cache_sized(bucket, work, threads)]
            self.batches = [ClientBatch(ids, [graphs[i] for i in ids], seed, device) for ids in groups]
            # All alike: private state may be laid out by it, and how clients are batched depends on the machine.
            sparse = are_sparse(graphs)
            for batch in self.batches:
                batch.graph.sparse = sparse
        self._workers = min(threads, len(self.batches))
        self._pool: ThreadPoolExecutor | None = None
        if self._workers > 1:
            each = (threads // self._workers,)
            self._pool = ThreadPoolExecutor(self._workers, initializer=torch.set_num_threads, initargs=each)
        self.bytes_down = 0
        self.bytes_up = 0
        self.seconds: Counter[str] = Counter()

    def run(self, task: Task, downloads: Tensors, cohort: Sequence[int], round_: int = 0) -> Tensors:
        """Run ``task`` for the clients of ``cohort``; row k of ``downloads`` and of the result belongs to cohort[k]."""
        place = {client: k for k, client in enumerate(cohort)}

        def work(batch: ClientBatch) -> tuple[Tensors, list[int], dict[str, float]]:
            rows = [row for row, client in enumerate(batch.ids) if client in place]
            everyone = len(rows) == len(batch)
            part = batch if everyone else batch.select(rows)
            part.round = round_
            part.seconds.clear()
            positions = [place[client] for client in part.ids]
            result = task(part, take(downloads, positions))
            if not everyone:
                batch.update(rows, part)
            return result, positions, part.seconds

        asked = [batch for batch in self.batches if not place.keys().isdisjoint(batch.ids)]
        done = list(self._pool.map(work, asked) if self._pool else map(work, asked))
        self.seconds = Counter()
        side_by_side = max(1, min(self._workers, len(asked)))
        for _, _, seconds in done:
            self.seconds.update({activity: spent / side_by_side for activity, spent in seconds.items()})
        uploads = gather([result for result, _, _ in done], [k for _, positions, _ in done for k in positions])
        self.bytes_down, self.bytes_up = bytes_per_client(downloads), bytes_per_client(uploads)
        return uploads

    def join_state(self) -> None:
        """Let the state of all batches lie side by side in memory, each with a view of its rows: to collect is free."""
        whole = self.collect(lambda batch: batch.state)
        for batch in self.batches:
            batch.state.update(take(whole, batch.ids))

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


def cache_sized(bucket: Sequence[int], work: Sequence[int], threads: int) -> list[list[int]]:
    """Neighbouring clients together as long as their work fits the cache, in ``threads`` groups or more if possible."""
    total = sum(work[client] for client in bucket)
    parts = min(len(bucket), max(threads, -(-total // _BATCH_BYTES)))
    # As many groups for every thread, or one waits for the others.
    parts = min(len(bucket), -(-parts // threads) * threads)
    return [group.tolist() for group in np.array_split(np.asarray(bucket), parts)]


def take(tensors: Tensors, rows: Sequence[int]) -> Tensors:
    """Those rows of every tensor; no copy if they are neighbours."""
    index = _index(rows)
    return {name: tensor[index] for name, tensor in tensors.items()}


def gather(parts: Sequence[Tensors], order: Sequence[int]) -> Tensors:
    """The rows of all parts in one tensor, the k-th of them at ``order[k]``."""
    if not parts:
        return {}
    if len(parts) == 1 and list(order) == sorted(order):
        return parts[0]
    return {name: _joined([part[name] for part in parts], order) for name in parts[0]}


def _joined(parts: Sequence[Tensor], order: Sequence[int]) -> Tensor:
    if list(order) == sorted(order) and _lie_side_by_side(parts):
        return torch.as_strided(parts[0], (len(order), *parts[0].shape[1:]), parts[0].stride())
    joined = parts[0].new_empty(len(order), *parts[0].shape[1:])
    begin = 0
    for part in parts:
        joined[_index(order[begin : begin + len(part)])] = part
        begin += len(part)
    return joined


def _lie_side_by_side(parts: Sequence[Tensor]) -> bool:
    """Whether each part begins in memory where the one before it ends, with nothing else between their rows."""
    first = parts[0]
    place = first.storage_offset()
    for part in parts:
        alike = (part.shape[1:], part.dtype) == (first.shape[1:], first.dtype) and part.is_contiguous()
        if not alike or part.untyped_storage().data_ptr() != first.untyped_storage().data_ptr():
            return False
        if part.storage_offset() != place:
            return False
        place += part.numel()
    return True


def _index(rows: Sequence[int]) -> slice | list[int]:
    """Neighbours as a slice, which is a view and not a copy."""
    first = rows[0] if rows else 0
    neighbours = list(rows) == list(range(first, first + len(rows)))
    return slice(first, first + len(rows)) if neighbours else list(rows)


def bytes_per_client(tensors: Tensors) -> int:
    """What one client's row of these tensors takes on the wire."""
    return sum(_row_bytes(tensor) for tensor in tensors.values())


def _row_bytes(tensor: Tensor) -> int:
    return tensor[0].numel() * tensor.element_size() if len(tensor) else 0
