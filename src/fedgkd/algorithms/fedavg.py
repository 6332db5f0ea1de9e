"""FedAvg: McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS 2017.

The mean is uniform by default, as the FedGKD paper describes it ("averages all the weights"); McMahan et al. weight by
the number of examples, which is the setting ``weighting = "train_nodes"``.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedgkd.algorithms.base import Algorithm, ServerRound
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.collaboration import Mixing, uniform, weighted
from fedgkd.settings import setting
from fedgkd.training import TrainingSettings, local_round


@dataclass(frozen=True)
class FedAvgSettings(TrainingSettings):
    weighting: str = setting("uniform", "how the mean weights the clients", choices=("uniform", "train_nodes"))


class FedAvg(Algorithm):
    Settings = FedAvgSettings

    def shares(self, parameter: str) -> bool:
        return True

    def client_step(self, clients: ClientBatch, download: Tensors) -> Tensors:
        return local_round(clients, download, self.model, self.settings, self.shares)

    def server_step(self, uploads: Tensors, server: ServerRound) -> Mixing:
        if self.settings.weighting == "train_nodes":
            return Mixing(weighted(uploads["nodes"][:, 0]))
        return Mixing(uniform(len(uploads["loss"])))
