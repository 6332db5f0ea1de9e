"""FedPer: Arivazhagan et al., "Federated learning with personalization layers", 2019.

The graph convolutions are averaged; the readout stays at the client.
"""

from __future__ import annotations

from fedgkd.algorithms.base import Algorithm, ServerRound
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.collaboration import Mixing, uniform
from fedgkd.models.network import READOUT
from fedgkd.training import TrainingSettings, local_round


class FedPer(Algorithm):
    Settings = TrainingSettings

    def shares(self, parameter: str) -> bool:
        return not parameter.startswith(READOUT)

    def client_step(self, clients: ClientBatch, download: Tensors) -> Tensors:
        return local_round(clients, download, self.model, self.settings, self.shares)

    def server_step(self, uploads: Tensors, server: ServerRound) -> Mixing:
        return Mixing(uniform(len(uploads["loss"])))
