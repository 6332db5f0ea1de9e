"""What the coordinator takes from a site: exactly the tensors that the algorithm uploads, finite and of sane size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedgkd.algorithms import REPORT, Algorithm
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.data.graph import Graph
from fedgkd.errors import FederationError, quoted
from fedgkd.experiments.client_round import client_round
from fedgkd.experiments.selection import SELECTED
from fedgkd.federation.wire import Message

if TYPE_CHECKING:
    from fedgkd.federation.plan import Plan

METRICS = (*(name for name in REPORT if name != "nodes"), *SELECTED)
"""What a site may keep to itself; the numbers of nodes weigh the models of some algorithms."""


_MOST_NODES = 1e12
_FACTS = 2048
"""Bytes that the facts beside the tensors take at most, terms apart."""
_REASON = 300
"""Characters of a site's own reason that are repeated."""
_NAME = 80
"""Characters of a name from outside that are repeated."""


SILENT = "answered that it cannot; its own log says why"
"""Of a site that gives no reason."""


class Refused(Exception):
    """Why an upload is not taken, as the end of a sentence that starts with the site's name."""


def cannot(reason: object) -> Refused:
    """The answer of a site that answered, but with no message; the reason is the site's own, and may be anything."""
    if not (isinstance(reason, str) and reason.strip()):
        return Refused(SILENT)
    return Refused(f"answered that it cannot: {FederationError(reason[:_REASON])}")


@dataclass(frozen=True)
class Expected:
    """What a site's upload must look like.

    Args:
        forms: Shape and type of every tensor.
        mixed: Names of those that flow into other sites' models, now or by the relation.
        largest_norm: How large they may be.
    """

    forms: Mapping[str, tuple[tuple[int, ...], torch.dtype]]
    mixed: tuple[str, ...]
    largest_norm: float

    @classmethod
    def of(cls, algorithm: Algorithm, select: str, largest_norm: float, upload: Tensors | None = None) -> Expected:
        upload = upload or rehearse(algorithm, select)
        forms = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in upload.items()}
        return cls(forms, (*algorithm.shared, *algorithm.extra_uploads), largest_norm)

    def check(self, message: Message, asked: Mapping[str, Any]) -> Tensors:
        """The tensors of an answer to what was ``asked`` (run and round), if they may be used.

        Raises:
            Refused: In words.
        """
        facts, tensors = message.facts, message.tensors
        if facts.get("run") != asked["run"]:
            raise Refused("answered for another run")
        if facts.get("round") != asked["round"]:
            raise Refused(f"answered for round {facts.get('round')!r} instead of round {asked['round']}")
        self._check_forms(tensors)
        if facts.get("diverged"):
            raise Refused("reports that its training diverged")
        self._check_values(tensors, hidden=facts.get("shared") is False)
        return tensors

    def _check_forms(self, tensors: Tensors) -> None:
        odd = sorted(self.forms.keys() ^ tensors.keys())
        if odd:
            how = "sent a tensor that nobody asked for" if odd[0] in tensors else "left out the tensor"
            raise Refused(f"{how}: {odd[0][:_NAME]!r}")  # a name from outside may hold anything
        for name, (shape, dtype) in self.forms.items():
            if tuple(tensors[name].shape) != shape:
                raise Refused(f"sent {quoted(name)} of shape {tuple(tensors[name].shape)} instead of {shape}")
            if tensors[name].dtype != dtype:
                raise Refused(f"sent {quoted(name)} as {tensors[name].dtype} instead of {dtype}")

    def _check_values(self, tensors: Tensors, hidden: bool) -> None:
        if not hidden and not tensors["loss"].isfinite().all():
            raise Refused("reports a loss that is not finite")
        nodes = tensors["nodes"]
        if not ((nodes >= 0) & (nodes <= _MOST_NODES) & (nodes == nodes.round())).all():
            raise Refused("reports impossible numbers of nodes")
        for name in METRICS:
            if name != "loss" and name in tensors and ((tensors[name] < 0) | (tensors[name] > 1)).any():
                raise Refused(f"reports an impossible {quoted(name)}")
        norm = 0.0
        for name in self.mixed:
            size = float(tensors[name].double().norm())
            if not math.isfinite(size):
                raise Refused(f"sent {quoted(name)} with values that are not finite")
            norm = math.hypot(norm, size)
        if norm > self.largest_norm:
            raise Refused(f"sent tensors of norm {norm:.3g}, more than the {self.largest_norm:g} that are allowed")


def rehearse(algorithm: Algorithm, select: str = "trained") -> Tensors:
    """What a client uploads in a round, from a made-up graph of two nodes per class: only its form means anything."""
    classes, features = algorithm.network.num_classes, algorithm.network.num_features
    nodes = 2 * classes
    y = np.arange(nodes) % classes
    ring = np.stack([np.arange(nodes), (np.arange(nodes) + 1) % nodes])
    all_nodes, none = np.ones(nodes, np.bool_), np.zeros(nodes, np.bool_)
    x = np.eye(nodes, features, dtype=np.float32)
    graph = Graph(x, np.hstack([ring, ring[::-1]]), y, classes, all_nodes, none, none, name="rehearsal")
    clients = ClientBatch([0], [graph], algorithm.seed)
    algorithm.start(clients)
    clients.round = 1
    start = algorithm.model.initial(algorithm.seed, 1)
    return client_round(algorithm, clients, {name: start[name] for name in algorithm.shared}, select)


def largest_message(plan: Plan, upload: Tensors | None = None) -> int:
    """Bytes that a question to a site, or its answer, may have: twice what the rehearsal's have.

    Args:
        upload: Of the rehearsal, if there has been one.
    """
    algorithm = plan.algorithm()
    upload = upload or rehearse(algorithm, plan.config.run.select)
    download = {name: upload[name] for name in algorithm.shared}
    messages = Message({}, upload), Message({"terms": plan.terms()}, download)
    return 2 * (max(len(message.to_bytes()) for message in messages) + _FACTS)


def without_metrics(upload: Tensors) -> Tensors:
    """The upload of a site that keeps its metrics to itself: nothing known in their place."""
    return {name: torch.full_like(tensor, torch.nan) if name in METRICS else tensor for name, tensor in upload.items()}
