"""What an algorithm is: a client's step, and the server's matrix."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from fedgkd.clients import ClientBatch, Tensors
from fedgkd.collaboration import Mixing
from fedgkd.models import Network
from fedgkd.training.local import start_clients

REPORT = (
    "received_accuracy",
    "received_macro_f1",
    "loss",
    "trained_accuracy",
    "trained_macro_f1",
    "nodes",
)
"""Counts and metrics that every algorithm's clients report; they are never mixed."""


class Algorithm(ABC):
    """A federated algorithm, written once for a batch of clients.

    Subclasses are final: they say which settings they have, which parameters the clients share, what a client does in a
    round (where its data is), and how the server relates the clients.
    """

    Settings: ClassVar[type[Any]]
    extra_uploads: ClassVar[tuple[str, ...]] = ()
    """Names of tensors that leave a client besides shared parameters and the report."""

    def __init__(self, settings: Any, network: Network, num_clients: int, seed: int) -> None:
        self.settings = settings
        self.network = network
        self.num_clients = num_clients
        self.seed = seed

    def start(self, clients: ClientBatch) -> None:
        """Give the clients their private state before the first round."""
        start_clients(clients, self.network)

    @abstractmethod
    def shares(self, parameter: str) -> bool:
        """Whether a parameter of that name leaves the client and is mixed."""

    @abstractmethod
    def client_step(self, clients: ClientBatch, download: Tensors) -> Tensors:
        """A client's work in a round; the result is all that leaves the clients."""

    @abstractmethod
    def server_step(self, uploads: Tensors, memory: Tensors) -> Mixing:
        """How the clients that took part are mixed, from what they uploaded."""

    @property
    def shared(self) -> tuple[str, ...]:
        """Names of the parameters that are mixed."""
        return tuple(name for name in self.network.parameters if self.shares(name))

    @property
    def uploads(self) -> frozenset[str]:
        """Names of everything that leaves a client."""
        return frozenset((*self.shared, *self.extra_uploads, *REPORT))
