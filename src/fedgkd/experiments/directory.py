"""The files of a run: what is written, when, and how it is read back after a kill.

config.toml       every setting: the run can be repeated from it
clients.json      who the clients are: names, nodes per split, label counts
metrics.jsonl     one line per round
relations.npz     R, S and Q of every round (relations.bin while the run goes on)
result.json       the figures of the finished run
SHA256SUMS        the SHA-256 of every file of the finished run
checkpoint/       the state after the last rounds, until the run is finished
models/           one file per client: its personal model
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgkd.atomic import atomic_write, atomic_write_text, is_leftover, remove_leftovers, sync_folder
from fedgkd.checksums import SUMS_FILE, damaged_files, digest_of, write_sums
from fedgkd.errors import RunError
from fedgkd.experiments.checkpoint import Slots
from fedgkd.experiments.config import Config, make_config, read_config_file
from fedgkd.experiments.locks import LOCK_FILE, Lock, locked, removed
from fedgkd.experiments.model_file import PersonalModel
from fedgkd.fields import check_result
from fedgkd.parsing import parse_json

MATRICES = ("R", "S", "Q")
MODELS = "models"

Records = dict[str, dict[str, Any]]

_CHUNK = 1 << 20


class RunDirectory:
    """A run's folder; ``num_clients`` is needed as soon as relations are written.

    Args:
        slots: How many checkpoints are kept.
    """

    def __init__(self, path: Path, slots: int = 2) -> None:
        self.path = path
        self._checkpoint = path / "checkpoint"
        self._lock: Lock | None = None
        self._metrics, self._relations = _Log(self.metrics_file), _Log(path / "relations.bin")
        self.state, self.kept = Slots(self._checkpoint, "state", slots), Slots(self._checkpoint, "best", slots)

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
    def _clients_file(self) -> Path:
        return self.path / "clients.json"

    @property
    def _models(self) -> Path:
        return self.path / MODELS

    @property
    def is_finished(self) -> bool:
        """Whether the result is there, which is written last."""
        return self.result_file.exists()

    @property
    def is_unfinished(self) -> bool:
        """Whether a run is going on in the folder, or was stopped; not if only its result is missing."""
        begun = self._relations.path.exists() or (self._clients_file.exists() and not (self.path / SUMS_FILE).exists())
        return self.config_file.exists() and not self.is_finished and begun

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
        names = (LOCK_FILE, self._checkpoint.name, self._relations.path.name)
        if self.is_finished and any((self.path / name).exists() for name in names):
            self.read_result()
            with suppress(RunError), self.held():  # whoever works there, or may write there, will do it
                self._drop_what_it_took_to_go_on()

    def _check_ours(self) -> None:
        """Raise if the folder was removed, or given to another run, while this one goes on."""
        if self._lock is not None:
            self._lock.check()
        if not self.config_file.exists():
            raise removed(self.path)

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
        atomic_write_text(self._clients_file, json.dumps(clients, allow_nan=False) + "\n", RunError)

    def append_round(self, record: dict[str, Any], matrices: NDArray[np.float32], *, durable: bool = True) -> None:
        """Add a round's record and its matrices R, S, Q ``(3, clients, clients)``.

        Args:
            record: What JSON can hold.
            matrices: The matrices.
            durable: Return only when all rounds are on the disk, as a checkpoint of this round requires.
        """
        self._check_ours()
        try:
            self._metrics.append(json.dumps(record, allow_nan=False).encode() + b"\n", durable)
            self._relations.append(np.ascontiguousarray(matrices, np.float32).tobytes(), durable)
            if durable:
                sync_folder(self.path)
        except OSError as error:
            raise RunError(f"cannot write to {self.path}: {error.strerror or error}") from error

    def records(self) -> Records:
        """Size and SHA-256 of what the rounds so far have written; a checkpoint keeps it for :meth:`rewind`."""
        return {log.path.name: log.mark() for log in (self._metrics, self._relations)}

    def rewind(self, rounds: int, num_clients: int, records: Records | None = None) -> None:
        """Drop what was written after that round: it will be computed again.

        Args:
            rounds: The round.
            num_clients: Their number.
            records: What :meth:`records` said at that round; None if a version of fedgkd wrote the checkpoint that
                did not yet ask.

        Raises:
            RunError: If the records of an earlier round are missing or damaged, or the run is finished.
        """
        if self.is_finished:
            raise RunError(f"the run in {self.path} is finished; there is nothing to go on with")
        try:
            for log in (self._metrics, self._relations):
                log.path.touch()
            lines = self.metrics_file.read_bytes().splitlines(keepends=True)[:rounds]
            sizes = {
                self._metrics: len(b"".join(lines)),
                self._relations: rounds * len(MATRICES) * num_clients**2 * np.float32().nbytes,
            }
            if len(lines) < rounds or self._relations.path.stat().st_size < sizes[self._relations]:
                raise RunError(f"{self.path}: the records of rounds before {rounds + 1} are missing; start a new run")
            for log, size in sizes.items():
                mark = {} if records is None else records[log.path.name]
                log.rewind(mark.get("bytes", size), mark.get("sha256"))
        except OSError as error:
            raise RunError(f"cannot read the records of {self.path}: {error.strerror or error}") from error

    def check_records(self) -> None:
        """Raise if the rounds up to a checkpoint of an unfinished run are not as they were written."""
        for stored in self.state.newest_first([]):
            for log in (self._metrics, self._relations):
                if mark := (stored.facts.get("records") or {}).get(log.path.name):
                    log.digest_of(mark["bytes"], mark["sha256"])

    def finish(
        self, result: dict[str, Any], num_clients: int, models: Mapping[int, PersonalModel] | None = None
    ) -> None:
        """Write models, relations and, last of all, the result: its presence means that the run is whole.

        What was only needed to go on is removed; it takes several times the room of the models.
        """
        self._check_ours()
        self._metrics.read()  # nobody else may have touched it
        for client, model in (models or {}).items():
            model.save(self.model_file(client))
        log = np.frombuffer(self._relations.read(), np.float32).reshape(-1, len(MATRICES), num_clients, num_clients)
        with atomic_write(self.relations_file, RunError, make_parents=False) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, R=log[:, 0], S=log[:, 1], Q=log[:, 2])
        text = json.dumps(result, indent=2, allow_nan=False) + "\n"
        self._write_sums(hashlib.sha256(text.encode()).hexdigest())
        atomic_write_text(self.result_file, text, RunError, make_parents=False)
        self._drop_what_it_took_to_go_on()

    def _write_sums(self, of_result: str) -> None:
        """For all that is there, and the result that is to come."""
        models = sorted(self._models.glob("*.safetensors")) if self._models.exists() else []
        files = [self.config_file, self._clients_file, self.metrics_file, self.relations_file, *models]
        sums = {file.relative_to(self.path).as_posix(): digest_of(file) for file in files if file.exists()}
        write_sums(self.path, sums | {self.result_file.name: of_result})

    def _drop_what_it_took_to_go_on(self) -> None:
        self._relations.path.unlink(missing_ok=True)
        shutil.rmtree(self._checkpoint, ignore_errors=True)

    def read_result(self) -> dict[str, Any]:
        """The figures of the finished run.

        Raises:
            RunError: If they are damaged, or the settings beside them.
        """
        names = (self.result_file.name, self.config_file.name)
        for sentence in damaged_files(self.path, lambda name: name in names):
            raise RunError(f"{sentence}; {self._way_on}")
        try:
            result = parse_json(self.result_file.read_bytes())
            if not isinstance(result, dict):
                raise ValueError(f"it holds no fields but a {type(result).__name__}")
        except (OSError, ValueError) as error:
            raise RunError(f"{self.result_file} is damaged ({error}); {self._way_on}") from error
        return result

    def checked_result(self) -> dict[str, Any]:
        """The same, with every figure that there must be.

        Raises:
            RunError: If one is missing, or cannot be what it is.
        """
        result = self.read_result()
        check_result(str(self.result_file), result, self._way_on)
        return result

    @property
    def _way_on(self) -> str:
        """What there is to do about a result that is lost; nothing needs to be deleted."""
        if self._checkpoint.exists():
            return "put back a copy of it, or move it elsewhere: then the run goes on from its checkpoint"
        return "put back a copy of it, or repeat the run in another folder"


class _Log:
    """A file that only grows, and the SHA-256 of what was written to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._size, self._digest = 0, hashlib.sha256()

    def mark(self) -> dict[str, Any]:
        return {"bytes": self._size, "sha256": self._digest.hexdigest()}

    def append(self, data: bytes, durable: bool) -> None:
        with self.path.open("ab", buffering=0) as file:
            rest = memoryview(data)
            while rest:  # a disk that is filling up takes less than all
                rest = rest[file.write(rest) :]
            if durable:
                os.fsync(file.fileno())
        self._size += len(data)
        self._digest.update(data)

    def rewind(self, size: int, expected: str | None) -> None:
        """Drop what lies beyond ``size`` bytes; nothing is dropped unless the digest of the rest is as expected."""
        self._digest = self.digest_of(size, expected)
        os.truncate(self.path, size)
        self._size = size

    def digest_of(self, size: int, expected: str | None) -> hashlib._Hash:
        """The digest of the first ``size`` bytes.

        Raises:
            RunError: If there are fewer, or it is not as expected.
        """
        digest = hashlib.sha256()
        try:
            with self.path.open("rb") as file:
                left = size
                while chunk := file.read(min(left, _CHUNK)):
                    digest.update(chunk)
                    left -= len(chunk)
        except OSError as error:
            raise RunError(f"cannot read {self.path}: {error.strerror or error}") from error
        if left or expected not in (None, digest.hexdigest()):
            raise RunError(
                f"{self.path} is damaged: the rounds before the checkpoint are not as they were written; "
                "put back a copy of it, or start a new run"
            )
        return digest

    def read(self) -> bytes:
        """All that was written.

        Raises:
            RunError: If it is something else that stands there.
        """
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise RunError(f"cannot read {self.path}: {error.strerror or error}") from error
        if hashlib.sha256(data).digest() != self._digest.digest():
            raise RunError(f"{self.path} is damaged: it is not as it was written; put back a copy of it, and resume")
        return data


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
