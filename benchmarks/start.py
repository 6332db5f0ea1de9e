"""How soon ``fedgkd run`` on cached Cora begins its first round, against a bare ``import torch``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.timing import race


def time_start(data_dir: Path | None, repeats: int) -> dict[str, float]:
    """Seconds from the start of a fresh process, the best of interleaved ones."""
    return race({"run": partial(until_first_round, data_dir), "import_torch": until_torch}, repeats)


def until_torch() -> float:
    return until_line([sys.executable, "-c", "import torch; print('round', flush=True)"])


def until_first_round(data_dir: Path | None) -> float:
    """The command says when round 1 is done; what that round itself took is in its record."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--dataset", "cora", "--rounds", "1", "--set", "checkpoint_every=0", "--out", f"{folder}/run"]
        if data_dir is not None:
            options += ["--data-dir", str(data_dir)]
        took = until_line([sys.executable, "-m", "fedgkd", "run", *options])
        record = json.loads(Path(folder, "run", "metrics.jsonl").read_text(encoding="utf-8").splitlines()[0])
        return took - float(record["seconds"]["total"])


def until_line(command: list[str]) -> float:
    """Seconds until a command prints a line that starts with ``round``; then it is left to end by itself."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | {"NO_COLOR": "1"}
    )
    assert process.stdout is not None
    said = []
    took = None
    for line in process.stdout:
        said.append(line)
        if took is None and line.startswith("round"):
            took = time.perf_counter() - start
    if process.wait() or took is None:
        raise RuntimeError(f"{' '.join(command)} failed: {''.join(said)}")
    return took
