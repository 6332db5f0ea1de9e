"""OpenFGL from PyPI, in an environment of its own and a process of its own, one round whenever it is its turn."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks.timing import Timed
from fedgkd.data.federation import Federation
from fedgkd.data.graph import Graph

# openfgl-lib declares only requests; the others are what its FedAvg imports.
PACKAGES = ("torch==2.13.0", "openfgl-lib==1.1.0", "torch_geometric", "scikit-learn", "munkres", "tqdm", "networkx")
DRIVER = Path(__file__).with_name("openfgl_driver.py")


class NotAvailable(Exception):
    """OpenFGL cannot be installed or run; the sentence says why."""


def install(folder: Path) -> Path:
    """The interpreter of an environment with OpenFGL in ``folder``, which is made if it is not there."""
    python = folder / "bin" / "python"
    stamp = folder / ".openfgl"
    if not stamp.exists():
        _call([sys.executable, "-m", "venv", str(folder)], "its environment cannot be made")
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _call([*pip, *PACKAGES], "it cannot be installed")
        stamp.write_text("\n".join(PACKAGES) + "\n", encoding="utf-8")
    return python


@contextmanager
def rounds(python: Path, federation: Federation, threads: int, epochs: int, hidden: int) -> Iterator[Timed]:
    """A call per round of OpenFGL's FedAvg over the same clients; it says how long that took by its own clock."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:
        _write(federation, Path(folder))
        command = [str(python), str(DRIVER), folder, str(threads), str(epochs), str(hidden)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        questions, answers = process.stdin, process.stdout

        def answer() -> str:
            line = answers.readline()
            if not line:
                errors.seek(0)
                raise NotAvailable(f"it stopped: {_last_line(errors.read())}")
            return line

        def one_round() -> float:
            questions.write("\n")
            questions.flush()
            return float(answer())

        try:
            answer()
            yield one_round
        finally:
            process.kill()
            process.communicate()


def _write(federation: Federation, folder: Path) -> None:
    whole = federation.whole
    if whole is None or federation.node_ids is None:
        raise NotAvailable("it needs clients that are parts of one graph")
    _write_graph(whole, np.arange(whole.num_nodes), folder / "whole.npz")
    for i, (graph, nodes) in enumerate(zip(federation.graphs, federation.node_ids, strict=True)):
        _write_graph(graph, nodes, folder / f"client-{i}.npz")


def _write_graph(graph: Graph, node_ids: np.ndarray, file: Path) -> None:
    x = graph.x.toarray() if isinstance(graph.x, sp.csr_array) else graph.x
    arrays = {"x": x, "edge_index": graph.edge_index, "y": graph.y, "node_ids": node_ids}
    np.savez(file, num_classes=np.array(graph.num_classes), **arrays)  # type: ignore[arg-type]


def _call(command: list[str], problem: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotAvailable(f"{problem}: {_last_line(done.stderr)}")


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it gave no reason"
