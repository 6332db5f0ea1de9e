"""FedStar: Tan et al., "Federated learning on non-IID graphs via structural knowledge sharing", AAAI 2023.

Every node gets a structure encoding: random-walk return probabilities beside its one-hot degree. A structure channel
over the encodings is averaged over the clients; a feature channel that looks at it in every layer stays at the client.

Published for graph classification with GIN in the feature channel; here for node classification with the run's
convolution, and isolated nodes, whose random walk divides by zero in the authors' release, have an encoding of zeros.
What else differs is in docs/algorithms/fedstar.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedgkd.algorithms.base import Algorithm, ServerRound
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.collaboration import Mixing, uniform
from fedgkd.models import Network
from fedgkd.models.two_channel import STRUCTURE, TwoChannel
from fedgkd.settings import setting
from fedgkd.training import TrainingSettings, local_round


@dataclass(frozen=True)
class FedStarSettings(TrainingSettings):
    walk_steps: int = setting(16, "longest random walk whose return is encoded", low=1)
    max_degree: int = setting(16, "degree from which on nodes are encoded alike", low=1)


class FedStar(Algorithm):
    Settings = FedStarSettings

    def build_model(self, network: Network) -> TwoChannel:
        return TwoChannel.of(network, self.settings.walk_steps, self.settings.max_degree)

    def shares(self, parameter: str) -> bool:
        return parameter.startswith(STRUCTURE)

    def client_step(self, clients: ClientBatch, download: Tensors) -> Tensors:
        return local_round(clients, download, self.model, self.settings, self.shares)

    def server_step(self, uploads: Tensors, server: ServerRound) -> Mixing:
        return Mixing(uniform(len(uploads["loss"])))
