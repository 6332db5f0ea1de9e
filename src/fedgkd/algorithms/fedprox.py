"""FedProx: Li et al., "Federated optimization in heterogeneous networks", MLSys 2020.

FedAvg with a proximal term. The coefficient is that of the FedGKD paper, 0.001, on the squared norm without ½.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedgkd.algorithms.base import Algorithm, ServerRound
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.collaboration import Mixing, uniform
from fedgkd.settings import setting
from fedgkd.training import TrainingSettings, local_round


@dataclass(frozen=True)
class FedProxSettings(TrainingSettings):
    proximal: float = setting(1e-3, "weight of the squared distance to the received model (λ)", low=0)


class FedProx(Algorithm):
    Settings = FedProxSettings

    def shares(self, parameter: str) -> bool:
        return True

    def client_step(self, clients: ClientBatch, download: Tensors) -> Tensors:
        settings: FedProxSettings = self.settings
        return local_round(clients, download, self.model, settings, self.shares, settings.proximal)

    def server_step(self, uploads: Tensors, server: ServerRound) -> Mixing:
        return Mixing(uniform(len(uploads["loss"])))
