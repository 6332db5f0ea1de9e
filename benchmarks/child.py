"""One run in a process of its own: its memory and the time of its rounds, as JSON on standard output.

Called as ``python -m benchmarks.child '{"algorithm": "fedgkd", …}' rounds data-dir``.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.machine import peak_bytes
from benchmarks.ours import Ours
from benchmarks.rounds import Tally, step
from fedgkd.data.federation import Federation
from fedgkd.experiments.config import make_config
from fedgkd.experiments.federations import federation_of

ROOT = Path(__file__).resolve().parents[1]


def run_apart(settings: Mapping[str, Any], rounds: int, data_dir: Path | None) -> dict[str, Any]:
    """What :func:`measure` says of a run, from a fresh process; the last line of its complaint if it fails."""
    command = [sys.executable, "-m", "benchmarks.child", json.dumps(dict(settings)), str(rounds), str(data_dir or "")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}
    return dict(json.loads(done.stdout))


def measure(settings: Mapping[str, Any], rounds: int, data_dir: Path | None) -> dict[str, Any]:
    """The best time of a round, shares, and memory beyond what the imports take."""
    imports = peak_bytes()
    config = make_config(("benchmark", settings))
    federation = federation_of(config, data_dir)
    prepared = peak_bytes()
    with tempfile.TemporaryDirectory() as folder:
        ours, tally = Ours(config, federation, Path(folder) / "run"), Tally()
        step(ours)
        best = min(step(ours, tally) for _ in range(rounds))
    parameters = sum(math.prod(each.shape) for each in ours.run.algorithm.model.parameters.values())
    return {
        "clients": federation.num_clients,
        **size(federation),
        "parameters": parameters * federation.num_clients,
        "round": best,
        "shares": tally.shares(),
        "bytes": {
            "imports": imports,
            "peak_of_preparation": prepared - imports,
            "peak": peak_bytes() - imports,
            # As a matrix of floats, which is how the plain loop holds them.
            "features": sum(4 * graph.num_nodes * graph.num_features for graph in federation.graphs),
            "parameters": 4 * parameters * federation.num_clients,
            "optimiser": 8 * parameters * federation.num_clients,
        },
    }


def size(federation: Federation) -> dict[str, int]:
    """Nodes and directed edges that the clients have together."""
    return {
        "nodes": sum(graph.num_nodes for graph in federation.graphs),
        "edges": sum(graph.edge_index.shape[1] for graph in federation.graphs),
    }


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]) if sys.argv[3] else None)))
