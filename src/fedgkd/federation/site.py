"""A site: one client with its graph, that answers the coordinator's messages. What it returns is all that leaves.

Its private state (readout, optimiser, whatever the algorithm keeps) is on disk after every round, the round before as
well, so that a killed process repeats at most a round, with the same result.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedgkd.atomic import atomic_write_text
from fedgkd.checksums import SUMS_FILE, digest_of, write_sums
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.data.graph import Graph
from fedgkd.engines.memory import reuse_freed_memory
from fedgkd.errors import FederationError, quoted
from fedgkd.experiments.checkpoint import Slots
from fedgkd.experiments.client_round import client_round
from fedgkd.experiments.hardware import count_cores, find_device
from fedgkd.experiments.model_file import PersonalModel
from fedgkd.experiments.plain import plain
from fedgkd.experiments.selection import keep_model, prefers_received, start_setting_aside
from fedgkd.federation.checks import METRICS, without_metrics
from fedgkd.federation.coordinator import FINISH, ROUND, SLOTS
from fedgkd.federation.plan import Plan
from fedgkd.federation.wire import Message
from fedgkd.training.evaluation import SPLITS, VAL
from fedgkd.training.local import personal_model

MODEL, METRICS_FILE, RESULT = "model.safetensors", "metrics.jsonl", "result.json"
_RUN = "run.json"
_STATES = SLOTS + 1
"""States that are kept: the coordinator may fall back to its oldest checkpoint, and this site may be a round ahead."""
_UNTRAINED: dict[str, Any] = {"trained": 0, "kept_round": 0, "best_val": -1.0, "kept_report": {}, "settled": False}


log = logging.getLogger(__name__)


class Site:
    """One site of a federation.

    Args:
        plan: What the parties agreed on, from the site's own kit.
        name: The site's own name, from its certificate.
        graph: Its graph, with a split.
        folder: Where its state, metrics and model are kept.
        share_metrics: Whether the coordinator may see loss, accuracy and macro-F1.
    """

    def __init__(
        self,
        plan: Plan,
        name: str,
        graph: Graph,
        folder: Path,
        *,
        share_metrics: bool = True,
        device: str = "cpu",
        threads: int = 0,
    ) -> None:
        if name not in plan.sites:
            raise FederationError(f"{quoted(name)} is not on the list of the federation: {', '.join(plan.sites)}")
        reuse_freed_memory()
        torch.set_num_threads(threads or count_cores())
        self.plan = plan
        self.name = name
        self.graph = graph
        self.folder = folder
        self.share_metrics = share_metrics
        self.algorithm = plan.algorithm()
        self.clients = ClientBatch([plan.sites.index(name)], [graph], plan.config.run.seed, find_device(device))
        self.run: str | None = None
        self.done = 0
        self._facts: dict[str, Any] = {}
        self._state = Slots(folder / "state", "site", _STATES)
        self._take_up()

    def answer(self, data: bytes) -> bytes:
        """The answer to a message of the coordinator.

        Raises:
            FederationError: If the coordinator asks for anything but what was agreed on.
        """
        try:
            message = Message.from_bytes(data)
        except ValueError as error:
            raise FederationError(f"the coordinator sent something that is {error}") from error
        facts = message.facts
        self._check(facts)
        if facts["kind"] == ROUND:
            self._check_download(message.tensors)
        round_ = facts["round"]
        if facts["run"] != self.run:
            self._begin(facts["run"])
        if self.done >= round_:
            self._go_back(round_)
        if facts["kind"] == FINISH:
            self._finish(round_ - 1)
            answer = {"run": self.run, "round": round_, "scored_round": self._facts["kept_round"]}
            return Message(answer, {}).to_bytes()
        return self._train(round_, message.tensors)

    def _check(self, facts: Mapping[str, Any]) -> None:
        """Only what this site's own federation file says is done."""
        ours, theirs = plain(self.plan.terms()), facts.get("terms")
        if not isinstance(theirs, dict):
            raise FederationError("the coordinator's message does not say what was agreed on")
        differing = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
        if differing:
            raise FederationError(
                f"the coordinator's federation file is not ours: {', '.join(differing)} differ; nothing was trained"
            )
        if facts.get("kind") not in (ROUND, FINISH):
            raise FederationError(f"the coordinator asks for {quoted(facts.get('kind'))}, which a site does not do")
        run, round_ = facts.get("run"), facts.get("round")
        if not (isinstance(run, str) and type(round_) is int and round_ > 0):
            raise FederationError("the coordinator's message does not say which run and round it is of")

    def _check_download(self, download: Tensors) -> None:
        """Exactly the weights that the algorithm shares, before anything that is there is touched."""
        if download.keys() != set(self.algorithm.shared):
            raise FederationError("the coordinator did not send the weights that were agreed on; nothing was trained")
        for name, tensor in download.items():
            shape = (1, *self.algorithm.model.parameters[name].shape)
            if tuple(tensor.shape) != shape or tensor.dtype != torch.float32 or not tensor.isfinite().all():
                raise FederationError(
                    f"the coordinator sent {quoted(name)} as {tensor.dtype} of shape {tuple(tensor.shape)}, not as "
                    f"finite 32-bit numbers of shape {shape}; nothing was trained"
                )

    def _train(self, round_: int, download: Tensors) -> bytes:
        began = time.perf_counter()
        clients = self.clients
        clients.round = round_
        clients.seconds.clear()
        received = {name: tensor.to(clients.device) for name, tensor in download.items()}
        upload = client_round(self.algorithm, clients, received, self._select)
        self.done = round_
        report = self._report(round_, upload)
        self._facts["trained"] += 1
        whole = bool(upload["loss"].isfinite().all()) and _is_finite(personal_model(clients))
        if whole:
            self._choose(round_, report)
        self._store()
        self._log(report)
        facts = {
            "run": self.run,
            "round": round_,
            "shared": self.share_metrics,
            "diverged": not whole,
            "scored_round": self._facts["kept_round"],
            "settled": self.settled,
            "seconds": time.perf_counter() - began,
        }
        return Message(facts, upload if self.share_metrics else without_metrics(upload)).to_bytes()

    def _report(self, round_: int, upload: Tensors) -> dict[str, Any]:
        """A round in the site's own numbers."""
        values: dict[str, Any] = {name: upload[name][0].cpu().numpy() for name in METRICS if name in upload}
        named = {name: dict(zip(SPLITS, value.tolist(), strict=True)) for name, value in values.items() if value.ndim}
        return dict(plain({"round": round_, "loss": float(values["loss"]), "selected": self._scored(upload), **named}))

    def _scored(self, upload: Tensors) -> str:
        """Under which name the upload has the scores of the model that the site sets aside."""
        if self._select == "client":
            return "received" if bool(prefers_received(upload)[0]) else "trained"
        return "selected" if self._select == "midpoint" else "trained"

    @property
    def _select(self) -> str:
        select: str = self.plan.config.run.select
        return select

    def _choose(self, round_: int, report: Mapping[str, Any]) -> None:
        """Keep the model if it is the best so far on the site's own validation nodes; without any, the last one.

        Nobody else's figures have a say, so no other site can talk this one into a worse model, and what it keeps is
        always a model that it trained. After as many rounds without a better one as the patience says, the choice is
        final: then it matters no more whether others train on.
        """
        val = report[f"{report['selected']}_accuracy"][SPLITS[VAL]]
        if val is None or (val > self._facts["best_val"] and not self.settled):
            self._facts["best_val"] = -1.0 if val is None else val
            self._keep(round_, report)
        patience = self.plan.config.run.patience
        self._facts["settled"] = bool(patience) and (val is None or round_ - self._facts["kept_round"] >= patience)

    @property
    def settled(self) -> bool:
        """Whether this site has no more use for further rounds."""
        return bool(self._facts["settled"])

    # --- state -------------------------------------------------------------------------------------------------

    def _begin(self, run: str) -> None:
        """A new run: everything from the start, for good."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # what is in it is nobody else's business
        except OSError as error:
            raise FederationError(f"cannot write to {self.folder}: {error.strerror or error}") from error
        shutil.rmtree(self.folder / "state", ignore_errors=True)
        for name in (MODEL, METRICS_FILE, RESULT, SUMS_FILE):
            (self.folder / name).unlink(missing_ok=True)
        atomic_write_text(self.folder / _RUN, json.dumps({"run": run, "site": self.name}) + "\n", FederationError)
        self.run = run
        self._start()

    def _start(self) -> None:
        self.clients.state = {}
        self.clients.round = 0
        self.algorithm.start(self.clients)
        start_setting_aside(self.clients, self._select)
        self.done = 0
        self._facts = dict(_UNTRAINED)

    def _take_up(self) -> None:
        """Go on where the last process of this site left off, if there was one."""
        try:
            run = json.loads((self.folder / _RUN).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise FederationError(f"cannot read {self.folder / _RUN}: {error}") from error
        if run.get("site") != self.name:
            raise FederationError(f"{self.folder} belongs to the site {quoted(run.get('site'))}; choose another --out")
        self.run = run["run"]
        self._go_back(None)

    def _go_back(self, before: int | None) -> None:
        """To the newest stored state before a round; the coordinator repeats a round that it lost."""
        known = self._state.newest_first([])
        stored = next((state for state in known if before is None or state.serial < before), None)
        if stored is None and known and before != 1:
            # Of a round that is to be repeated, but better than none: to refuse would help nobody.
            stored = known[-1]
            log.warning(
                "the coordinator is back at round %s; the oldest state here is of round %d", before, stored.serial
            )
        if stored is None:
            self._start()
            return
        self._state.go_back(stored)  # it may be asked for again
        self.clients.state = {name: t.clone().to(self.clients.device) for name, t in stored.tensors.items()}
        self.done, self._facts = stored.serial, _UNTRAINED | stored.facts

    def _store(self) -> None:
        (self.folder / SUMS_FILE).unlink(missing_ok=True)  # those of an end that was not the last
        self._state.write(self.done, self.clients.state, self._facts)

    def _log(self, report: Mapping[str, Any]) -> None:
        """Add a round to the site's own metrics; one that is repeated takes the place of the first try."""
        path = self.folder / METRICS_FILE
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
        except OSError as error:
            raise FederationError(f"cannot read {path}: {error.strerror or error}") from error
        earlier = [line for line in lines if _round_of(line) < report["round"]]
        atomic_write_text(path, "\n".join([*earlier, json.dumps(report), ""]), FederationError)

    # --- the model ---------------------------------------------------------------------------------------------

    @property
    def outcome(self) -> str:
        """What came of the training, as the end of a sentence."""
        if not self._facts["kept_round"]:
            return "this site trained in no round, so it has no model; ask the admin why it was left out"
        return f"the model is of round {self._facts['kept_round']}; model and metrics are in {self.folder}"

    def _keep(self, round_: int, report: Mapping[str, Any]) -> None:
        """Write down the model as it is now; it is the best so far."""
        keep_model(self.clients)
        origin = {"algorithm": self.plan.config.run.algorithm, "dataset": self.plan.rules.name, "round": round_}
        model = PersonalModel(
            self.algorithm.model,
            self.clients.kept,
            self.graph.class_names or self.plan.class_names,
            self.graph.feature_names,
            origin | {"client": self.name},
        )
        model.save(self.folder / MODEL)
        self._facts |= {"kept_round": round_, "kept_report": report}

    def _finish(self, last: int) -> None:
        self._store()
        masks = self.graph.masks or ()
        counts = {split: int(np.count_nonzero(mask)) for split, mask in zip(SPLITS, masks, strict=True)}
        result = {
            "site": self.name,
            "algorithm": self.plan.config.run.algorithm,
            "rounds": last,
            "rounds_trained": self._facts["trained"],
            "best_round": self._facts["kept_round"],
            "nodes": counts,
            "at_best_round": self._facts["kept_report"],
            "outcome": self.outcome,
        }
        atomic_write_text(self.folder / RESULT, json.dumps(result, indent=2) + "\n", FederationError)
        files = [self.folder / name for name in (_RUN, MODEL, METRICS_FILE, RESULT)]
        write_sums(self.folder, {file.name: digest_of(file) for file in files if file.exists()})


def _is_finite(tensors: Tensors) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in tensors.values())


def _round_of(line: str) -> float:
    """The round that a line of metrics is of; beyond all others if it is not whole, as after a full disk."""
    try:
        return int(json.loads(line)["round"])
    except (ValueError, LookupError, TypeError):
        return float("inf")
