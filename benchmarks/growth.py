"""How a round grows: with the graph at ten clients, and with the clients on one graph."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.child import run_apart, size
from benchmarks.ours import Ours, configure
from benchmarks.rounds import step
from benchmarks.timing import Timed, race
from benchmarks.workloads import ARXIV, TINY, Workload

NODES = (10_000, 20_000, 40_000, 80_000)
CLIENTS = (10, 50, 200, 1000)


def with_the_graph(threads: int, repeats: int, nodes: tuple[int, ...] = NODES) -> dict[str, Any]:
    """Seconds of a FedGKD round at several sizes, and the exponent of nodes + edges that fits them best."""
    config = configure("fedgkd", threads, {})
    sizes: list[dict[str, Any]] = []
    jobs: dict[str, Timed] = {}
    for count in nodes:
        work = Workload(str(count), "synthetic", 10, synthetic=f"num_nodes={count} num_communities={count // 500}")
        federation = work.federation()
        sizes.append(size(federation))
        jobs[work.name] = partial(step, Ours(config, federation))
    best = race(jobs, repeats)
    for each, took in zip(sizes, best.values(), strict=True):
        each["round"] = took
    work_done = [each["nodes"] + each["edges"] for each in sizes]
    slope = np.polyfit(np.log(work_done), np.log(list(best.values())), 1)[0]
    return {"sizes": sizes, "exponent": float(slope)}


def with_the_clients(threads: int, rounds: int, clients: tuple[int, ...] = CLIENTS, graph: str = ARXIV) -> list[Any]:
    """The same graph cut among more and more clients, each time in a fresh process."""
    return [
        run_apart(_settings(Workload(str(n), "synthetic", n, synthetic=graph), threads), rounds, None) for n in clients
    ]


def memory(works: list[Workload], threads: int, data_dir: Path | None) -> dict[str, Any]:
    """Memory of a few FedGKD rounds of each workload, each in a fresh process.

    Any round makes the libraries load code that importing them does not; a tiny run shows how much.
    """
    tiny = run_apart(_settings(TINY, threads), 1, data_dir)
    if "failed" in tiny:
        return {TINY.name: tiny}
    runs = {work.name: run_apart(_settings(work, threads), 3, data_dir) for work in works}
    for run in runs.values():
        if "failed" not in run:
            run["bytes"]["tiny_run"] = tiny["bytes"]["peak"]
    return runs


def _settings(work: Workload, threads: int) -> dict[str, Any]:
    return work.settings() | {"algorithm": "fedgkd", "threads": threads, "patience": 0}
