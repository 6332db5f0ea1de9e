"""The files of a run: what is written, when, and how it is read back after a kill.

config.toml       every setting: the run can be repeated from it
clients.json      who the clients are: names, nodes per split, label counts
metrics.jsonl     one line per round
relations.npz     R, S and Q of every round (relations.bin while the run goes on)
result.json       the figures of the finished run
checkpoint/       the state after the last rounds, until the run is finished
models/           one file per client: its personal model
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgkd.atomic import atomic_write, atomic_write_text, is_leftover, remove_leftovers, sync_folder
from fedgkd.errors import RunError
from fedgkd.experiments.checkpoint import Slots
from fedgkd.experiments.config import Config, make_config, read_config_file
from fedgkd.experiments.locks import LOCK_FILE, Lock, locked
from fedgkd.experiments.model_file import PersonalModel

MATRICES = ("R", "S", "Q")


class RunDirectory:
    """A run's folder; ``num_clients`` is needed as soon as relations are written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._checkpoint = path / "checkpoint"
        self._lock: Lock | None = None
        self.state, self.kept = Slots(self._checkpoint, "state"), Slots(self._checkpoint, "best")

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

    @property
    def _models(self) -> Path:
        return self.path / "models"

    @property
    def is_finished(self) -> bool:
        """Whether the result is there, which is written last."""
        return self.result_file.exists()

    def model_file(self, client: int) -> Path:
        return self._models / f"client-{client}.safetensors"

    def check_idle(self) -> None:
        """Raise if another process works on a run in the folder."""
        if self.config_file.exists() and not self.is_finished:
            with self.held():
                pass

    def check_unused(self) -> None:
        """Raise if the folder holds a run or anything else, but for what a kill left of a run that had not begun."""
        if self.config_file.exists():
            how = "is finished" if self.is_finished else f"can go on with: fedgkd resume {self.path}"
            raise RunError(f"{self.path} already holds a run, which {how}; choose another --out for a new one")
        names = [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else []
        crowd = [name for name in names if name != LOCK_FILE and not is_leftover(name)]
        if crowd:
            raise RunError(f"{self.path} is not empty ({min(crowd)}); choose another --out")

    @contextmanager
    def held(self) -> Iterator[None]:
        """While one process works in the folder, no other may; what killed ones left behind is removed.

        Raises:
            RunError: If another one does, or the folder cannot be written.
        """
        with locked(self.path, wait=False) as self._lock:
            try:
                remove_leftovers(self._models)
                yield
            finally:
                self._lock = None

    def tidy(self) -> None:
        """Remove what a kill in the last moments of a finished run left behind; the run is whole all the same.

        Raises:
            RunError: If the result cannot be read: then what was left behind may be needed.
        """
        names = (LOCK_FILE, self._checkpoint.name, self._relations_log.name)
        if self.is_finished and any((self.path / name).exists() for name in names):
            self.read_result()
            with suppress(RunError), self.held():  # whoever works there, or may write there, will do it
                self._drop_what_it_took_to_go_on()

    def _check_ours(self) -> None:
        """Raise if the folder was removed, or given to another run, while this one goes on."""
        if not (self.config_file.exists() and (self._lock is None or self._lock.is_there)):
            raise RunError(
                f"{self.path}, or a file of the run in it, was removed while the run went on; nothing more is written "
                "there; start the run again"
            )

    def create(self, config: Config) -> None:
        """Claim an empty or new folder for a run.

        Raises:
            RunError: If something is there already, or the folder cannot be written.
        """
        self.check_unused()
        atomic_write_text(self.config_file, config.to_toml(), RunError)

    def load_config(self) -> Config:
        if not self.config_file.exists():
            raise RunError(f"{self.path} holds no run (no config.toml); start one with: fedgkd run --out {self.path}")
        return make_config((str(self.config_file), read_config_file(self.config_file)))

    def describe_clients(self, clients: dict[str, Any]) -> None:
        atomic_write_text(self.path / "clients.json", json.dumps(clients, allow_nan=False) + "\n", RunError)

    def append_round(self, record: dict[str, Any], matrices: NDArray[np.float32], *, durable: bool = True) -> None:
        """Add a round's record and its matrices R, S, Q ``(3, clients, clients)``.

        Args:
            record: What JSON can hold.
            matrices: The matrices.
            durable: Return only when all rounds are on the disk, as a checkpoint of this round requires.
        """
        self._check_ours()
        try:
            _append(self.metrics_file, json.dumps(record, allow_nan=False).encode() + b"\n", durable)
            _append(self._relations_log, np.ascontiguousarray(matrices, np.float32).tobytes(), durable)
            if durable:
                sync_folder(self.path)
        except OSError as error:
            raise RunError(f"cannot write to {self.path}: {error.strerror or error}") from error

    def rewind(self, rounds: int, num_clients: int) -> None:
        """Drop what was written after that round: it will be computed again.

        Raises:
            RunError: If the records of an earlier round are missing, or the run is finished.
        """
        if self.is_finished:
            raise RunError(f"the run in {self.path} is finished; there is nothing to go on with")
        try:
            for log in (self.metrics_file, self._relations_log):
                log.touch()
            lines = self.metrics_file.read_text(encoding="utf-8").splitlines(keepends=True)[:rounds]
            log_bytes = rounds * len(MATRICES) * num_clients**2 * np.float32().nbytes
            if len(lines) < rounds or self._relations_log.stat().st_size < log_bytes:
                raise RunError(f"{self.path}: the records of rounds before {rounds + 1} are missing; start a new run")
            os.truncate(self._relations_log, log_bytes)
        except (OSError, ValueError) as error:
            raise RunError(f"cannot read the records of {self.path}: {error}") from error
        atomic_write_text(self.metrics_file, "".join(lines), RunError)

    def finish(self, result: dict[str, Any], num_clients: int, models: Iterable[PersonalModel] = ()) -> None:
        """Write models, relations and, last of all, the result: its presence means that the run is whole.

        What was only needed to go on is removed; it takes several times the room of the models.
        """
        self._check_ours()
        for client, model in enumerate(models):
            model.save(self.model_file(client))
        log = np.fromfile(self._relations_log, np.float32).reshape(-1, len(MATRICES), num_clients, num_clients)
        with atomic_write(self.relations_file, RunError) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, R=log[:, 0], S=log[:, 1], Q=log[:, 2])
        atomic_write_text(self.result_file, json.dumps(result, indent=2, allow_nan=False) + "\n", RunError)
        self._drop_what_it_took_to_go_on()

    def _drop_what_it_took_to_go_on(self) -> None:
        self._relations_log.unlink(missing_ok=True)
        shutil.rmtree(self._checkpoint, ignore_errors=True)

    def read_result(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self.result_file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise RunError(f"{self.result_file} is damaged ({error}); {self._way_on}") from error

    @property
    def _way_on(self) -> str:
        """What there is to do about a result that is lost."""
        copy = "put back a copy of it, or"
        if self._checkpoint.exists():
            return f"{copy} move it elsewhere and go on from the checkpoint with: fedgkd resume {self.path}"
        return f"{copy} repeat the run in a new folder with: fedgkd run --config {self.config_file} --out NEW"


def _append(path: Path, data: bytes, durable: bool) -> None:
    with path.open("ab", buffering=0) as file:
        while data:  # a disk that is filling up takes less than all
            data = data[file.write(data) :]
        if durable:
            os.fsync(file.fileno())


def new_folder(folder: Path, name: str) -> Path:
    """Make ``folder/name``, or ``folder/name-2`` and so on if that is taken; no two processes get the same."""
    candidate, number = folder / name, 1
    while True:
        try:
            candidate.mkdir(parents=True)
            return candidate
        except FileExistsError:
            number += 1
            candidate = folder / f"{name}-{number}"
        except OSError as error:
            raise RunError(f"cannot write to {folder}: {error.strerror or error}") from error
