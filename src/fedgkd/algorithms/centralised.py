"""Centralised: one model trained on the nodes of all clients at once.

Not a federated algorithm but an oracle: the ceiling that federated ones are measured against. Every training node
counts alike. See docs/algorithms/centralised.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedgkd.algorithms.base import Oracle, ServerRound
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.collaboration import Mixing, uniform
from fedgkd.data.federation import Federation
from fedgkd.data.pooling import Pool, union, whole
from fedgkd.settings import setting
from fedgkd.training import TrainingSettings, local_round

GRAPHS = {"union": union, "whole": whole}


@dataclass(frozen=True)
class CentralisedSettings(TrainingSettings):
    graph: str = setting(
        "union", "the clients' graphs side by side, or the whole graph before it was divided", choices=tuple(GRAPHS)
    )


class Centralised(Oracle):
    Settings = CentralisedSettings

    def pool(self, federation: Federation) -> Pool:
        return GRAPHS[self.settings.graph](federation)

    def shares(self, parameter: str) -> bool:
        return False

    def client_step(self, clients: ClientBatch, download: Tensors) -> Tensors:
        upload = local_round(clients, download, self.model, self.settings, self.shares)
        # One model has one loss; every client reports it.
        return upload | {"loss": upload["loss"].expand(self.num_clients)}

    def server_step(self, uploads: Tensors, server: ServerRound) -> Mixing:
        return Mixing(uniform(len(uploads["loss"])))
