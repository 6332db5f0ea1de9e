"""One run: rounds of an algorithm over a federation, recorded, resumable, ending in personal models."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedgkd._version import __version__
from fedgkd.algorithms import ServerRound
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.collaboration import Mixing, mix, spearman
from fedgkd.data.federation import Federation
from fedgkd.data.statistics import label_divergence
from fedgkd.engines import InProcessEngine
from fedgkd.engines.in_process import take
from fedgkd.errors import RunError, SettingError
from fedgkd.experiments.checkpoint import Stored
from fedgkd.experiments.config import Config
from fedgkd.experiments.directory import RunDirectory
from fedgkd.experiments.model_file import PersonalModel
from fedgkd.experiments.scores import TEST, VAL, Best, Scoreboard
from fedgkd.randomness import stream
from fedgkd.training.evaluation import SPLITS
from fedgkd.training.local import personal_model

Record = dict[str, Any]


@dataclass(frozen=True)
class Events:
    """What a run tells while it goes on; both do nothing unless given."""

    on_round: Callable[[Record], None] = lambda record: None
    on_warning: Callable[[str], None] = lambda sentence: None


class Run:
    """A run of ``config`` over ``federation``, written to ``directory`` if there is one."""

    def __init__(
        self, config: Config, federation: Federation, directory: RunDirectory | None, events: Events | None = None
    ) -> None:
        self.config = config
        self.federation = federation
        self.directory = directory
        self.events = events or Events()
        self.round = 0
        self.best = Best()
        self.best_received = Best()
        self.scores = Scoreboard.empty(federation.num_clients)
        self.totals = {"bytes_up": 0, "bytes_down": 0, "seconds": 0.0}
        self._set_up()

    def _set_up(self) -> None:
        settings = self.config.run
        device = _device(settings.device)
        torch.set_num_threads(settings.threads or _cores())
        federation = self.federation
        network = self.config.network(federation.num_features, federation.num_classes)
        self.algorithm = self.config.algorithm(self.config.method, network, federation.num_clients, settings.seed)
        self.engine = InProcessEngine(federation.graphs, settings.seed, device)
        self.divergence = label_divergence(federation)
        self.memory: Tensors = {}
        start = self.algorithm.model.initial(settings.seed, 1, device)
        self.models: Tensors = {
            name: start[name].expand(federation.num_clients, *start[name].shape[1:]) for name in self.algorithm.shared
        }

    def start(self) -> None:
        """Give the clients their state before round 1."""
        self.engine.run(self._start_task, {}, range(self.federation.num_clients))

    def execute(self) -> Record:
        """All rounds that are left; returns the result, which is also written to the directory."""
        settings = self.config.run
        while self.round < settings.rounds and not self._out_of_patience():
            record = self.step()
            self.events.on_round(record)
        return self._finish()

    def step(self) -> Record:
        """One round."""
        began = time.perf_counter()
        self.round += 1
        cohort = self._cohort()
        mixing, finite = self._communicate(cohort)
        quality = self._relation_quality(mixing, finite)
        record = self._record(cohort, finite, mixing, quality)
        seconds = self.engine_seconds | {"total": time.perf_counter() - began}
        self.totals["seconds"] += seconds["total"]
        if self.directory is not None:
            self._store(record, self._matrices(mixing, finite), seconds)
        return record | {"seconds": seconds}

    # --- a round -----------------------------------------------------------------------------------------------

    def _cohort(self) -> list[int]:
        """Who takes part: a random share, less those that fail to answer."""
        settings, n = self.config.run, self.federation.num_clients
        if settings.participation == 1.0 and settings.dropout_rate == 0.0:
            return list(range(n))
        draw = stream(settings.seed, "participation", self.round)
        asked = draw.permutation(n)[: max(1, round(settings.participation * n))]
        answered = asked[draw.random(len(asked)) >= settings.dropout_rate]
        return sorted(answered.tolist())

    def _communicate(self, cohort: Sequence[int]) -> tuple[Mixing | None, list[int]]:
        """Clients' work, scores, and the server step over those whose upload is finite."""
        self.engine_seconds: dict[str, float] = {}
        if not cohort:
            return None, []
        downloads = take(self.models, cohort)
        uploads = self.engine.run(self.algorithm.client_step, downloads, cohort, self.round)
        self.engine_seconds = dict(self.engine.seconds)
        self.totals["bytes_up"] += self.engine.bytes_up * len(cohort)
        self.totals["bytes_down"] += self.engine.bytes_down * len(cohort)
        self._keep_if_best(uploads, cohort)
        began = time.perf_counter()
        usable = self._usable(uploads, cohort)
        if not usable:
            return None, []
        finite = [cohort[k] for k in usable]
        server = ServerRound(self.round, tuple(finite), take(downloads, usable), self.memory)
        mixing = self.algorithm.server_step(take(uploads, usable), server)
        self._hand_out(mix(mixing.weights.to(_device(self.config.run.device)), self._shared(uploads, usable)), finite)
        self.memory = mixing.memory
        self.engine_seconds["server"] = time.perf_counter() - began
        return mixing, finite

    def _usable(self, uploads: Tensors, cohort: Sequence[int]) -> list[int]:
        finite = uploads["loss"].isfinite()
        for client, good in zip(cohort, finite.tolist(), strict=True):
            if not good:
                self.events.on_warning(
                    f"round {self.round}: the loss of {self.federation.names[client]} is not finite; "
                    "it goes back to the model it received and is kept out of this round's mixture"
                )
        return finite.nonzero().squeeze(1).tolist()

    def _shared(self, uploads: Tensors, rows: Sequence[int]) -> Tensors:
        return take({name: uploads[name] for name in self.algorithm.shared}, rows)

    def _hand_out(self, mixed: Tensors, clients: Sequence[int]) -> None:
        """Everybody who took part gets a new model; the others keep theirs."""
        if len(clients) == self.federation.num_clients:
            self.models = mixed
            return
        for name, tensor in mixed.items():
            updated = self.models[name].clone()
            updated[list(clients)] = tensor
            self.models[name] = updated

    def _keep_if_best(self, uploads: Tensors, cohort: Sequence[int]) -> None:
        """If validation has never been better, every client keeps the model that was scored."""
        prefers_received = self.scores.update(uploads, cohort, self.config.run.select)
        if not self.scores.everybody_known:
            return
        if self.best.offer(self.round, self.scores.mean("selected", VAL), self._figures("selected")):
            self._keep(dict(zip(cohort, prefers_received.tolist(), strict=True)))
        self.best_received.offer(self.round, self.scores.mean("received", VAL), self._figures("received"))

    def _keep(self, prefers_received: dict[int, bool]) -> None:
        for batch in self.engine.batches:
            keep_model(batch, [prefers_received.get(client, False) for client in batch.ids])
        self._kept_is_new = True

    def _figures(self, model: str) -> Record:
        scores = self.scores
        return {
            "test_accuracy": scores.mean(model, TEST),
            "val_accuracy": scores.mean(model, VAL),
            "test_accuracy_weighted": scores.weighted_mean(model, TEST),
            "test_macro_f1": scores.mean_macro_f1(model, TEST),
            "per_client": scores.per_client(TEST, model),
        }

    def _relation_quality(self, mixing: Mixing | None, clients: Sequence[int]) -> float | None:
        if mixing is None or mixing.relation is None or len(clients) < 3:
            return None
        rows = list(clients)
        quality = spearman(mixing.relation.numpy(), self.divergence[np.ix_(rows, rows)])
        return quality if np.isfinite(quality) else None

    def _out_of_patience(self) -> bool:
        patience = self.config.run.patience
        return bool(patience and self.best.round and self.round - self.best.round >= patience)

    # --- records -----------------------------------------------------------------------------------------------

    def _record(self, cohort: list[int], finite: list[int], mixing: Mixing | None, quality: float | None) -> Record:
        scores = self.scores
        models = {}
        for model in ("trained", "received", "selected"):
            models[model] = {
                "accuracy": {split: _number(scores.mean(model, k)) for k, split in enumerate(SPLITS)},
                "accuracy_weighted": {split: _number(scores.weighted_mean(model, k)) for k, split in enumerate(SPLITS)},
                "macro_f1": {split: _number(scores.mean_macro_f1(model, k)) for k, split in enumerate(SPLITS)},
                "per_client": {split: scores.per_client(k, model) for k, split in enumerate(SPLITS)},
            }
        return {
            "round": self.round,
            "present": cohort,
            "left_out": sorted(set(cohort) - set(finite)),
            "loss": _number(float(np.nanmean(scores.loss)) if np.isfinite(scores.loss).any() else float("nan")),
            "loss_per_client": [_number(value) for value in scores.loss],
            **models,
            "best_round": self.best.round,
            "bytes_up": self.engine.bytes_up if cohort else 0,
            "bytes_down": self.engine.bytes_down if cohort else 0,
            "relation_quality": quality,
            **(mixing.facts if mixing else {}),
        }

    def _matrices(self, mixing: Mixing | None, clients: Sequence[int]) -> NDArray[np.float32]:
        """R, S and Q over all clients; NaN where a client took no part or the algorithm has no such matrix."""
        n = self.federation.num_clients
        full = np.full((3, n, n), np.nan, np.float32)
        if mixing is not None:
            block = np.ix_(list(clients), list(clients))
            for k, matrix in enumerate((mixing.relation, mixing.kernel, mixing.weights)):
                if matrix is not None:
                    full[k][block] = np.clip(matrix.numpy(), -_LARGEST, _LARGEST)
        return full

    # --- storage -----------------------------------------------------------------------------------------------

    _kept_is_new = False

    def _store(self, record: Record, matrices: NDArray[np.float32], seconds: dict[str, float]) -> None:
        assert self.directory is not None
        every = self.config.run.checkpoint_every
        due = bool(every) and self.round % every == 0
        began = time.perf_counter()
        if due and self._kept_is_new:
            self.best_serial += 1
            self.directory.kept.write(self.best_serial, self.engine.collect(lambda batch: batch.kept), {})
            self._kept_is_new = False
        wrote = time.perf_counter() - began
        self.directory.append_round(record | {"seconds": seconds}, matrices)
        began = time.perf_counter()
        if due:
            self.directory.state.write(self.round, self._state_tensors(), self._state_facts())
        seconds["checkpoint"] = wrote + time.perf_counter() - began
        self.totals["seconds"] += seconds["checkpoint"]

    best_serial = 0

    def _state_tensors(self) -> Tensors:
        tensors = {f"client.{name}": t for name, t in self.engine.collect(lambda batch: batch.state).items()}
        tensors |= {f"server.{name}": tensor for name, tensor in self.models.items()}
        return tensors | {f"memory.{name}": tensor for name, tensor in self.memory.items()}

    def _state_facts(self) -> Record:
        return {
            "round": self.round,
            "partition_hash": self.federation.partition_hash,
            "config": self.config.values(),
            "best": asdict(self.best),
            "best_received": asdict(self.best_received),
            "best_serial": self.best_serial,
            "totals": self.totals,
            "scores": _plain(asdict(self.scores)),
        }

    def restore(self, stored: Stored, kept: Tensors) -> None:
        """Take up the state of a checkpoint."""
        facts = stored.facts
        now = self.config.values()
        changed = sorted(
            name for name in now.keys() | facts["config"].keys() if now.get(name) != facts["config"].get(name)
        )
        if changed:
            raise RunError(
                f"config.toml has changed since the checkpoint ({', '.join(changed)}); start a new run instead"
            )
        if facts["partition_hash"] != self.federation.partition_hash:
            raise RunError("the clients' graphs are not those of the checkpoint; a run resumes only on the same data")
        self.round = facts["round"]
        self.best, self.best_received = Best(**facts["best"]), Best(**facts["best_received"])
        self.best_serial, self.totals = facts["best_serial"], facts["totals"]
        self.scores = Scoreboard(**_arrays(facts["scores"]))
        self.engine.restore(lambda batch: batch.state, _part(stored.tensors, "client."))
        self.engine.restore(lambda batch: batch.kept, kept)
        device = _device(self.config.run.device)
        self.models = {name: t.to(device) for name, t in _part(stored.tensors, "server.").items()}
        self.memory = _part(stored.tensors, "memory.")

    # --- the end -----------------------------------------------------------------------------------------------

    def _finish(self) -> Record:
        if not self.best.round:
            # Without validation nodes, or with clients that never took part, the last round is all there is.
            self._keep({})
            self.best.round, self.best.figures = self.round, self._figures("selected")
        result = self.result()
        if self.directory is not None:
            for client, model in enumerate(self.personal_models()):
                model.save(self.directory.model_file(client))
            self.directory.finish(result, self.federation.num_clients)
        return result

    def personal_models(self) -> list[PersonalModel]:
        """Every client's best model."""
        kept = self.engine.collect(lambda batch: batch.kept)
        origin = {"algorithm": self.config.run.algorithm, "dataset": self.federation.dataset, "round": self.best.round}
        return [
            PersonalModel(
                self.algorithm.model,
                {name: tensor[client : client + 1] for name, tensor in kept.items()},
                graph.class_names,
                graph.feature_names,
                origin | {"client": self.federation.names[client]},
            )
            for client, graph in enumerate(self.federation.graphs)
        ]

    def result(self) -> Record:
        """The figures of the run; the headline is the mean test accuracy at the best validation round."""
        settings, federation = self.config.run, self.federation
        parameters = sum(int(np.prod(p.shape)) for p in self.algorithm.model.parameters.values())
        record = {
            "algorithm": settings.algorithm,
            "dataset": federation.dataset,
            "clients": federation.num_clients,
            "setting": federation.setting,
            "seed": settings.seed,
            "scored_model": {"trained": "just-trained", "client": "chosen by each client"}[settings.select],
            "rounds": self.round,
            "best_round": self.best.round,
            **self.best.figures,
            "test_accuracy_received": self.best_received.figures.get("test_accuracy"),
            "best_round_received": self.best_received.round,
            "test_accuracy_last": self.scores.mean("trained", TEST),
            "clients_without_test_nodes": int((self.scores.nodes[:, TEST] == 0).sum()),
            "client_names": list(federation.names),
            "parameters": parameters,
            "local_epochs": self.config.method.local_epochs,
            "bytes_up": self.totals["bytes_up"],
            "bytes_down": self.totals["bytes_down"],
            "seconds": self.totals["seconds"],
            "partition_hash": federation.partition_hash,
            "versions": versions(),
        }
        return {name: _number(value) if isinstance(value, float) else value for name, value in record.items()}

    def _start_task(self, clients: ClientBatch, download: Tensors) -> Tensors:
        self.algorithm.start(clients)
        return {}


def keep_model(clients: ClientBatch, prefers_received: Sequence[bool]) -> None:
    """Keep what each client has now, or what it received where it prefers that."""
    use = torch.tensor(prefers_received, device=clients.device)
    for name, trained in personal_model(clients).items():
        kept = trained.clone()
        if use.any():
            kept[use] = clients.received[name][use]
        clients.kept[name] = kept


def resume(directory: RunDirectory, federation: Federation, events: Events | None = None) -> Run:
    """A run as its last whole checkpoint left it; the sentence of every damaged one goes to ``on_warning``."""
    run = Run(directory.load_config(), federation, directory, events)
    stored, problems = directory.state.read()
    kept: Tensors = {}
    if stored is not None and stored.facts["best_serial"]:
        best = directory.kept.read_serial(stored.facts["best_serial"])
        if best is None:
            raise RunError(f"{directory.path}: the best models of the checkpoint are damaged; start the run anew")
        kept = best.tensors
    for problem in problems:
        earlier = f"goes on from round {stored.facts['round']}" if stored else "starts anew"
        run.events.on_warning(f"checkpoint {problem}; the run {earlier}")
    if stored is None:
        run.start()
    else:
        run.restore(stored, kept)
    directory.rewind(run.round, federation.num_clients)
    return run


def versions() -> dict[str, str]:
    return {
        "fedgkd": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise SettingError(f"device must be cpu, cuda or cuda:N, not '{name}'") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SettingError(f"device {name} is not there: this PyTorch sees no CUDA device; use cpu")
    return device


def _cores() -> int:
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_LARGEST = float(np.finfo(np.float32).max)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _plain(value: Any) -> Any:
    """Arrays as lists, NaN as null: what JSON can hold."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    array = np.asarray(value, dtype=object)
    array[~np.isfinite(value)] = None
    return array.tolist()


def _arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _arrays(entry) for key, entry in value.items()}
    return np.array(value, dtype=np.float64)


def _part(tensors: Tensors, prefix: str) -> Tensors:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
