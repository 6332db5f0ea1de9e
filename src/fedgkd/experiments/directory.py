"""The files of a run: what is written, when, and how it is read back after a kill.

config.toml       every setting: the run can be repeated from it
metrics.jsonl     one line per round
relations.npz     R, S and Q of every round (relations.bin while the run goes on)
result.json       the figures of the finished run
checkpoint/       the state after the last rounds
models/           one file per client: its personal model
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgkd.atomic import atomic_write, atomic_write_text
from fedgkd.errors import RunError
from fedgkd.experiments.checkpoint import Slots
from fedgkd.experiments.config import Config, make_config, read_config_file

MATRICES = ("R", "S", "Q")


class RunDirectory:
    """A run's folder; ``num_clients`` is needed as soon as relations are written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = Slots(path / "checkpoint", "state")
        self.kept = Slots(path / "checkpoint", "best")

    @property
    def config_file(self) -> Path:
        return self.path / "config.toml"

    @property
    def result_file(self) -> Path:
        return self.path / "result.json"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def relations_file(self) -> Path:
        return self.path / "relations.npz"

    @property
    def _relations_log(self) -> Path:
        return self.path / "relations.bin"

    def model_file(self, client: int) -> Path:
        return self.path / "models" / f"client-{client}.safetensors"

    def create(self, config: Config) -> None:
        """Claim an empty or new folder for a run.

        Raises:
            RunError: If something is there already, or the folder cannot be written.
        """
        if self.config_file.exists():
            how = "is finished" if self.result_file.exists() else f"can go on with: fedgkd resume {self.path}"
            raise RunError(f"{self.path} already holds a run, which {how}; choose another --out for a new one")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            crowd = next(self.path.iterdir(), None)
        except OSError as error:
            raise RunError(f"cannot use {self.path} for a run: {error.strerror or error}") from error
        if crowd is not None:
            raise RunError(f"{self.path} is not empty ({crowd.name}); choose another --out")
        atomic_write_text(self.config_file, config.to_toml(), RunError)

    def load_config(self) -> Config:
        if not self.config_file.exists():
            raise RunError(f"{self.path} holds no run (no config.toml); start one with: fedgkd run --out {self.path}")
        return make_config((str(self.config_file), read_config_file(self.config_file)))

    def append_round(self, record: dict[str, Any], matrices: NDArray[np.float32]) -> None:
        """Add a round's record and its matrices R, S, Q ``(3, clients, clients)``."""
        try:
            with self.metrics_file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record, allow_nan=False) + "\n")
            with self._relations_log.open("ab") as log:
                log.write(np.ascontiguousarray(matrices, np.float32).tobytes())
        except OSError as error:
            raise RunError(f"cannot write to {self.path}: {error.strerror or error}") from error

    def rewind(self, rounds: int, num_clients: int) -> None:
        """Drop what was written after that round: it will be computed again."""
        if rounds == 0 and not self.metrics_file.exists():
            return
        lines = self.metrics_file.read_text(encoding="utf-8").splitlines(keepends=True)[:rounds]
        atomic_write_text(self.metrics_file, "".join(lines), RunError)
        if self._relations_log.exists():
            os.truncate(self._relations_log, rounds * self._matrices_bytes(num_clients))

    def finish(self, result: dict[str, Any], num_clients: int) -> None:
        """Write the relations and, last of all, the result: its presence means that the run is whole."""
        log = np.fromfile(self._relations_log, np.float32).reshape(-1, len(MATRICES), num_clients, num_clients)
        with atomic_write(self.relations_file, RunError) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, R=log[:, 0], S=log[:, 1], Q=log[:, 2])
        atomic_write_text(self.result_file, json.dumps(result, indent=2, allow_nan=False) + "\n", RunError)
        self._relations_log.unlink()

    def read_result(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.result_file.read_text(encoding="utf-8"))
        return result

    @staticmethod
    def _matrices_bytes(num_clients: int) -> int:
        return len(MATRICES) * num_clients * num_clients * 4


def next_free(folder: Path, name: str) -> Path:
    """``folder/name``, or ``folder/name-2`` and so on if that is taken."""
    candidate, number = folder / name, 1
    while candidate.exists():
        number += 1
        candidate = folder / f"{name}-{number}"
    return candidate
