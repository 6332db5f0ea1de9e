"""What an algorithm is: a client's step, and the server's matrix."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fedgkd.clients import ClientBatch, Tensors
from fedgkd.collaboration import Mixing
from fedgkd.data.federation import Federation
from fedgkd.data.pooling import Pool
from fedgkd.models import Model, Network
from fedgkd.training.local import check_settings, start_clients

REPORT = (
    "received_accuracy",
    "received_macro_f1",
    "loss",
    "trained_accuracy",
    "trained_macro_f1",
    "nodes",
)
"""Counts and metrics that every algorithm's clients report; they are never mixed."""


@dataclass(frozen=True)
class ServerRound:
    """What the server knows in a round besides the uploads.

    Args:
        round: Number of the round, from 1.
        cohort: The clients behind the rows of the uploads.
        downloads: The shared weights that those clients started from.
        memory: What the server kept from its last round.
    """

    round: int
    cohort: tuple[int, ...]
    downloads: Tensors = field(default_factory=dict)
    memory: Tensors = field(default_factory=dict)


class Algorithm(ABC):
    """A federated algorithm, written once for a batch of clients.

    Subclasses are final: they say which settings they have, which parameters the clients share, what a client does in a
    round (where its data is), and how the server relates the clients.
    """

    Settings: ClassVar[type[Any]]
    extra_uploads: tuple[str, ...] = ()
    """Names of tensors that leave a client besides shared parameters and the report."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Named sets of values; an algorithm that has some has a setting ``preset`` to choose one."""

    def __init__(self, settings: Any, network: Network, num_clients: int, seed: int) -> None:
        self.settings = settings
        self.network = network
        self.model = self.build_model(network)
        check_settings(settings, self.model)
        self.num_clients = num_clients
        self.seed = seed

    def build_model(self, network: Network) -> Model:
        """The clients' model, given the network that the run asks for."""
        return network

    def start(self, clients: ClientBatch) -> None:
        """Give the clients their private state before the first round."""
        start_clients(clients, self.model)

    @abstractmethod
    def shares(self, parameter: str) -> bool:
        """Whether a parameter of that name leaves the client and is mixed."""

    @abstractmethod
    def client_step(self, clients: ClientBatch, download: Tensors) -> Tensors:
        """A client's work in a round; the result is all that leaves the clients."""

    @abstractmethod
    def server_step(self, uploads: Tensors, server: ServerRound) -> Mixing:
        """How the clients that took part are mixed, from what they uploaded."""

    @property
    def start_epochs(self) -> int:
        """Epochs that a client trains something in :meth:`start`, for an honest account of its work."""
        return 0

    @property
    def shared(self) -> tuple[str, ...]:
        """Names of the parameters that are mixed."""
        return tuple(name for name in self.model.parameters if self.shares(name))

    @property
    def uploads(self) -> frozenset[str]:
        """Names of everything that leaves a client."""
        return frozenset((*self.shared, *self.extra_uploads, *REPORT))


class Oracle(Algorithm):
    """Sees the graphs of all clients at once: a ceiling for federated algorithms, not one of them.

    Its ``client_step`` gets the pool as if it were one client's graph, and reports a row for every client.
    """

    @abstractmethod
    def pool(self, federation: Federation) -> Pool:
        """What it sees."""
