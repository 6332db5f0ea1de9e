"""One run: rounds of an algorithm over a federation, recorded, resumable, ending in personal models."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
import torch

from fedgkd.algorithms import Oracle
from fedgkd.clients import ClientBatch, Tensors, all_finite
from fedgkd.collaboration import Mixing, auc, spearman
from fedgkd.data.federation import Federation
from fedgkd.data.statistics import label_divergence
from fedgkd.engines import InProcessEngine
from fedgkd.engines.in_process import bytes_per_client, take
from fedgkd.errors import RunError, SettingError
from fedgkd.experiments.checkpoint import Stored
from fedgkd.experiments.client_round import client_round
from fedgkd.experiments.config import Config
from fedgkd.experiments.directory import RunDirectory
from fedgkd.experiments.federations import fingerprint
from fedgkd.experiments.hardware import count_cores, find_device, memory
from fedgkd.experiments.model_file import PersonalModel
from fedgkd.experiments.plain import alike, plain
from fedgkd.experiments.records import (
    Record,
    clients_record,
    figures,
    relation_matrices,
    result_record,
    round_record,
)
from fedgkd.experiments.scores import Best, Scoreboard
from fedgkd.experiments.selection import keep_model, start_setting_aside
from fedgkd.experiments.serving import serve
from fedgkd.models.network import part
from fedgkd.randomness import stream
from fedgkd.training.evaluation import VAL
from fedgkd.training.local import MODEL

_FLOAT = 4
# Values, gradients, moments, and what is kept and sent.
_PARAMETER_BYTES = 58
_MOST_LAYERS = 1000
# A training step holds about as many activations of each node at a time.
_ACTIVATIONS = 6
_DONORS = 4
"""Fewer effective donors than one in so many clients are a collapse."""
_SETTLED = 20
"""Rounds before which hardly any received model is better than a guess."""


@dataclass(frozen=True)
class Events:
    """What a run tells while it goes on; both do nothing unless given."""

    on_round: Callable[[Record], None] = lambda record: None
    on_warning: Callable[[str], None] = lambda sentence: None


def _check_room(config: Config, federation: Federation) -> None:
    """Raise if the clients' parameters alone are more than this machine can hold; building them would take for ever."""
    run = config.run
    if run.layers > _MOST_LAYERS:
        raise SettingError(f"layers must be at most {_MOST_LAYERS:,}, not {run.layers:,}")
    units = federation.num_features + max(0, run.layers - 2) * run.hidden + federation.num_classes
    needed = _PARAMETER_BYTES * federation.num_clients * units * run.hidden
    if needed > memory():
        raise SettingError(
            f"there is not enough memory (Unable to allocate {needed / 1e9:,.0f} GB for the models of "
            f"{federation.num_clients} clients with hidden = {run.hidden:,} and layers = {run.layers:,}); "
            f"there are {memory() / 1e9:.1f} GB: make them smaller"
        )


class Run:
    """A run of ``config`` over ``federation``, written to ``directory`` if there is one.

    Attributes:
        round: The last round that was done.
        scores: What is known of every client's models.
        best, best_received: The best rounds so far by validation, of the scored and of the received models.
        models: The shared weights that the server holds for each client.
        memory: What the server keeps from round to round.
    """

    def __init__(
        self, config: Config, federation: Federation, directory: RunDirectory | None, events: Events | None = None
    ) -> None:
        settings, clients = config.run, federation.num_clients
        self.config = config
        self.federation = federation
        self.directory = directory
        self.events = events or Events()
        self.device = find_device(settings.device)
        threads = settings.threads or count_cores()
        torch.set_num_threads(threads)
        _check_room(config, federation)
        network = config.network(federation.num_features, federation.num_classes)
        self.algorithm = config.algorithm(config.method, network, clients, settings.seed)
        graphs = self.algorithm.pool(federation) if isinstance(self.algorithm, Oracle) else federation.graphs
        self.engine = InProcessEngine(
            graphs,
            settings.seed,
            self.device,
            threads,
            node_bytes=_ACTIVATIONS * network.hidden * _FLOAT,
            client_bytes=sum(self.algorithm.model.sizes.values()) * _FLOAT,
        )
        start = self.algorithm.model.initial(settings.seed, 1, self.device)
        self.models: Tensors = {
            name: start[name].expand(clients, *start[name].shape[1:]) for name in self.algorithm.shared
        }
        self.memory: Tensors = {}
        self.round = 0
        self.scores = Scoreboard.empty(clients)
        self.best, self.best_received = Best(), Best()
        self.totals = {"bytes_up": 0, "bytes_down": 0, "bytes_features": 0, "seconds": 0.0}
        self._kept_serial, self._kept_is_new = 0, False
        self._few_donors = False
        self._checkpoints_took = self._longest_checkpoint = 0.0

    def start(self) -> None:
        """Give the clients their state before round 1, and write down who they are."""
        if self.directory is not None:
            self.directory.describe_clients(plain(clients_record(self.federation)))
        began = time.perf_counter()
        self.engine.run(self._start_task, {}, range(self.federation.num_clients))
        self.engine.join_state()
        self.totals["seconds"] += time.perf_counter() - began

    def execute(self) -> Record:
        """All rounds that are left; returns the result, which is also written to the directory."""
        settings = self.config.run
        while self.round < settings.rounds and not self.best.is_stale(self.round, settings.patience):
            self.events.on_round(self.step())
        return self._finish()

    def step(self) -> Record:
        """One round."""
        began = time.perf_counter()
        self.round += 1
        cohort = self._cohort()
        uploads = self._visit(cohort) if cohort else {}
        seconds: dict[str, float] = dict(self.engine.seconds) if cohort else {}
        served = time.perf_counter()
        usable = self._usable(uploads, cohort) if cohort else []
        present = [cohort[k] for k in usable]
        mixing = self._serve(take(uploads, usable), present) if present else None
        seconds |= {"server": time.perf_counter() - served, "total": time.perf_counter() - began}
        self.totals["seconds"] += seconds["total"]
        record: Record = plain(self._record(cohort, present, mixing) | {"seconds": seconds})
        self._warn_of_few_donors(record["effective_donors"], len(present))
        if self.directory is not None:
            self._store(self.directory, record, mixing, present)
        return record

    # --- a round -----------------------------------------------------------------------------------------------

    @property
    def _everybody_takes_part(self) -> bool:
        return self.config.run.participation == 1.0 and self.config.run.dropout_rate == 0.0

    def _cohort(self) -> list[int]:
        """Who takes part: a random share, less those that fail to answer."""
        settings, n = self.config.run, self.federation.num_clients
        if self._everybody_takes_part:
            return list(range(n))
        draw = stream(settings.seed, "participation", self.round)
        asked = draw.permutation(n)[: max(1, round(settings.participation * n))]
        answered = asked[draw.random(len(asked)) >= settings.dropout_rate]
        return sorted(answered.tolist())

    def _visit(self, cohort: Sequence[int]) -> Tensors:
        """The clients' work; their scores are taken in, and their models kept if validation has never been better."""
        uploads = self.engine.run(self._client_task, take(self.models, cohort), cohort, self.round)
        self.totals["bytes_up"] += self.engine.bytes_up * len(cohort)
        self.totals["bytes_down"] += self.engine.bytes_down * len(cohort)
        features = {name: uploads[name] for name in self.algorithm.extra_uploads}
        self.totals["bytes_features"] += bytes_per_client(features) * len(cohort)
        self.scores.update(uploads, cohort, self.config.run.select)
        if self.scores.everybody_known:
            if self.best.offer(self.round, self.scores.mean("selected", VAL), figures(self.scores, "selected")):
                self._keep()
            self.best_received.offer(self.round, self.scores.mean("received", VAL), figures(self.scores, "received"))
        return uploads

    def _start_task(self, clients: ClientBatch, download: Tensors) -> Tensors:
        self.algorithm.start(clients)
        start_setting_aside(clients, self.config.run.select)
        return {}

    def _client_task(self, clients: ClientBatch, download: Tensors) -> Tensors:
        return client_round(self.algorithm, clients, download, self.config.run.select)

    def _keep(self) -> None:
        for batch in self.engine.batches:
            keep_model(batch)
        self._kept_is_new = True

    def _usable(self, uploads: Tensors, cohort: Sequence[int]) -> list[int]:
        """Rows of the uploads that are finite; who is left out is named."""
        mixed = ("loss", *self.algorithm.shared, *self.algorithm.extra_uploads)
        finite = all_finite({name: uploads[name] for name in mixed})
        for client, good in zip(cohort, finite.tolist(), strict=True):
            if not good:
                self.events.on_warning(
                    f"round {self.round}: the loss or upload of {self.federation.names[client]} is not finite; "
                    "it is kept out of this round's mixture and goes back to the model it received"
                )
        return finite.nonzero().squeeze(1).tolist()

    def _serve(self, uploads: Tensors, present: Sequence[int]) -> Mixing:
        """The server step over those present, whose next models it mixes; the others keep theirs."""
        mixing, self.models = serve(self.algorithm, uploads, present, self.round, self.models, self.memory)
        self.memory = mixing.memory
        return mixing

    def _record(self, cohort: Sequence[int], present: Sequence[int], mixing: Mixing | None) -> Record:
        moved = (self.engine.bytes_up, self.engine.bytes_down) if cohort else (0, 0)
        record = round_record(self.round, cohort, present, self.scores, self.best.round, moved, mixing)
        return record | self._relation_agreement(mixing, present)

    def _relation_agreement(self, mixing: Mixing | None, present: Sequence[int]) -> Record:
        """How well the relation agrees with what only a simulation knows: the labels, and groups of like tasks."""
        if mixing is None or mixing.relation is None:
            return {}
        relation, groups = mixing.relation.cpu().numpy(), self.federation.groups
        return {
            "relation_quality": spearman(relation, self._divergence[np.ix_(list(present), list(present))]),
            "relation_auc": None if groups is None else auc(relation, [groups[client] for client in present]),
        }

    @cached_property
    def _divergence(self) -> np.ndarray:
        return label_divergence(self.federation)

    def _warn_of_few_donors(self, donors: float | None, present: int) -> None:
        """Once: models that all come from a few clients are hidden by what local training makes of them."""
        if donors is None or self._few_donors or donors >= present / _DONORS:
            return
        self._few_donors = True
        self.events.on_warning(
            f"round {self.round}: the mixtures are made of the models of about {donors:.0f} of {present} clients; "
            "lower the kernel's temperatures, or let them follow the number of clients (see effective_donors)"
        )

    def _warn_of_useless_mixtures(self) -> None:
        """The figures of just-trained models do not show what the received ones are worth."""
        received, guess = self.scores.mean("received", VAL), self._majority_share
        if self.round >= _SETTLED and self.algorithm.shared and received < guess:
            self.events.on_warning(
                f"received models have a validation accuracy of {received:.1%}, where the largest class "
                f"of each client would have {guess:.1%}: they are worth nothing before local training"
            )

    @property
    def _majority_share(self) -> float:
        """Mean over clients of the share of the largest class among its validation nodes."""
        labels = [graph.y[graph.masks[VAL]] for graph in self.federation.graphs if graph.masks is not None]
        shares = [np.bincount(of_client).max() / len(of_client) for of_client in labels if len(of_client)]
        return float(np.mean(shares)) if shares else float("nan")

    # --- storage -----------------------------------------------------------------------------------------------

    def _store(self, directory: RunDirectory, record: Record, mixing: Mixing | None, present: Sequence[int]) -> None:
        due = self._checkpoint_is_due()
        matrices = relation_matrices(mixing, present, self.federation.num_clients)
        began = time.perf_counter()
        directory.append_round(record, matrices, durable=due)
        if due:
            self._checkpoint(directory)
        spent = time.perf_counter() - began
        record["seconds"]["checkpoint"] = spent
        self.totals["seconds"] += spent
        if due:
            self._checkpoints_took += spent
            self._longest_checkpoint = max(self._longest_checkpoint, spent)

    def _checkpoint(self, directory: RunDirectory) -> None:
        """The state refers to the best models and to the rounds' records, so these are on the disk before it."""
        if self._kept_is_new:
            self._kept_serial += 1
            directory.kept.write(self._kept_serial, self.engine.collect(lambda batch: batch.kept), {})
            self._kept_is_new = False
        directory.state.write(self.round, self._state_tensors(), plain(self._state_facts()))

    def _checkpoint_is_due(self) -> bool:
        """At the rounds asked for, unless one like the longest so far would exceed checkpoints' share of the time."""
        settings = self.config.run
        if not settings.checkpoint_every or self.round % settings.checkpoint_every:
            return False
        next_ = self._longest_checkpoint
        return self._checkpoints_took + next_ <= settings.checkpoint_share * (self.totals["seconds"] + next_)

    def _state_tensors(self) -> Tensors:
        state = self.engine.collect(lambda batch: batch.state)
        if self.best.round and self._everybody_takes_part:
            # The next round starts from the server's weights, and the best models are kept elsewhere.
            again = {MODEL + name for name in self.algorithm.shared}
            state = {name: tensor for name, tensor in state.items() if name not in again}
        # Rows that share their memory are stored once.
        server = {name: tensor if tensor.stride(0) else tensor[:1] for name, tensor in self.models.items()}
        return _prefixed("client.", state) | _prefixed("server.", server) | _prefixed("memory.", self.memory)

    def _state_facts(self) -> Record:
        return {
            "data": self._fingerprint,
            "config": self.config.values(),
            "best": asdict(self.best),
            "best_received": asdict(self.best_received),
            "kept_serial": self._kept_serial,
            "records": self.directory.records() if self.directory else None,
            "totals": self.totals,
            "scores": asdict(self.scores),
        }

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self.federation)

    def restore(self, stored: Stored, kept: Tensors) -> None:
        """Take up the state of a checkpoint.

        Raises:
            RunError: If the checkpoint is of other settings or other data.
        """
        facts = stored.facts
        now, then = self.config.values(), facts["config"]
        changed = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
        if changed:
            raise RunError(
                f"config.toml has changed since the checkpoint ({', '.join(changed)}); start a new run instead"
            )
        if facts["data"] != self._fingerprint:
            raise RunError("the clients' graphs are not those of the checkpoint; a run resumes only on the same data")
        fresh = plain(self._state_facts())
        for name in ("best", "best_received", "kept_serial", "totals", "scores"):
            if not alike(facts[name], fresh[name]):
                raise ValueError(f"{name} of the checkpoint is of another form")
        self.round = stored.serial
        self.best, self.best_received = Best(**facts["best"]), Best(**facts["best_received"])
        self._kept_serial, self.totals = facts["kept_serial"], facts["totals"]
        self.scores = Scoreboard.from_plain(facts["scores"])
        clients = self.federation.num_clients
        server = {name: tensor.to(self.device) for name, tensor in part(stored.tensors, "server.").items()}
        shapes = {name: tensor.shape[1:] for name, tensor in self.models.items()}
        if {name: tensor.shape[1:] for name, tensor in server.items()} != shapes:
            raise ValueError("the models of the checkpoint are of another shape")
        self.models = {name: tensor.expand(clients, *tensor.shape[1:]) for name, tensor in server.items()}
        state = {MODEL + name: tensor for name, tensor in self.models.items()} | part(stored.tensors, "client.")
        self.engine.restore(lambda batch: batch.state, state)
        self.engine.join_state()
        self.engine.restore(lambda batch: batch.kept, kept)
        self.memory = {name: tensor.to(self.device) for name, tensor in part(stored.tensors, "memory.").items()}

    # --- the end -----------------------------------------------------------------------------------------------

    def _finish(self) -> Record:
        if not self.best.round:
            # Without validation nodes, or with clients that never took part, the last round is all there is.
            self._keep()
            self.best.round, self.best.figures = self.round, figures(self.scores, "selected")
        if absent := self.scores.clients_never_present:
            self.events.on_warning(
                f"{absent} of {self.federation.num_clients} clients never took part: no figure has them, and their "
                "models are untrained; raise rounds or participation"
            )
        self._warn_of_useless_mixtures()
        result = self.result()
        if self.directory is not None:
            models = dict(enumerate(self.personal_models()))
            whole = {client: model for client, model in models.items() if model.is_finite}
            if lost := [self.federation.names[client] for client in models if client not in whole]:
                result["clients_without_model"] = lost
                self.events.on_warning(f"no model file for {', '.join(lost)}: weights are not finite; try a lower lr")
            self.directory.finish(result, self.federation.num_clients, whole)
        return result

    def personal_models(self) -> list[PersonalModel]:
        """Every client's best model; an oracle has one for all."""
        kept = self.engine.collect(lambda batch: batch.kept)
        rows = [0 if isinstance(self.algorithm, Oracle) else client for client in range(self.federation.num_clients)]
        origin = {"algorithm": self.config.run.algorithm, "dataset": self.federation.dataset, "round": self.best.round}
        return [
            PersonalModel(
                self.algorithm.model,
                {name: tensor[row : row + 1] for name, tensor in kept.items()},
                graph.class_names,
                graph.feature_names,
                origin | {"client": self.federation.names[client]},
            )
            for client, (row, graph) in enumerate(zip(rows, self.federation.graphs, strict=True))
        ]

    def result(self) -> Record:
        """The figures of the run; the headline is the mean test accuracy at the best validation round."""
        record = result_record(
            self.config,
            self.algorithm,
            self.federation.names,
            self.round,
            self.scores,
            self.best,
            self.best_received,
            self.totals,
            dataset=self.federation.dataset,
            setting=self.federation.setting,
            partition_hash=self.federation.partition_hash,
        )
        return dict(plain(record))


def resume(directory: RunDirectory, federation: Federation, events: Events | None = None) -> Run:
    """A run as its last whole checkpoint left it; the sentence of every damaged one goes to ``on_warning``."""
    run = Run(directory.load_config(), federation, directory, events)
    problems: list[str] = []
    found = _newest_whole(directory, problems)
    for problem in problems:
        run.events.on_warning(
            f"{problem}; the run {f'goes on from round {found[0].serial}' if found else 'starts anew'}"
        )
    if found is None:
        run.start()
        directory.rewind(run.round, federation.num_clients)
        return run
    stored, _ = found
    try:
        run.restore(*found)
        directory.rewind(run.round, federation.num_clients, stored.facts.get("records"))
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError, RuntimeError) as error:
        raise RunError(
            f"the checkpoint of round {stored.serial} in {directory.path} is whole, but not one of this version of "
            "fedgkd; go on with the version that wrote it, or start a new run"
        ) from error
    return run


def _newest_whole(directory: RunDirectory, problems: list[str]) -> tuple[Stored, Tensors] | None:
    """The newest checkpoint whose state and best models are both whole."""
    for stored in directory.state.newest_first(problems):
        serial = stored.facts.get("kept_serial", -1)  # which none has
        if serial == 0:
            return stored, {}
        best = directory.kept.read(serial)
        if best is not None:
            return stored, best.tensors
        problems.append(f"the best models in the checkpoint of round {stored.serial} are damaged")
    return None


def _prefixed(prefix: str, tensors: Tensors) -> Tensors:
    return {prefix + name: tensor for name, tensor in tensors.items()}
