"""FedSage: Zhang et al., "Subgraph federated learning with missing neighbor generation", NeurIPS 2021.

FedAvg of a GraphSAGE network with the mean aggregator, whatever convolution the run asks for. The mean over clients is
uniform, as in the authors' release; that release samples five neighbours a layer in small batches, here every epoch
sees all of them. See docs/algorithms/fedsage.md.
"""

from __future__ import annotations

from dataclasses import replace

from fedgkd.algorithms.base import Algorithm, ServerRound
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.collaboration import Mixing, uniform
from fedgkd.models import Network
from fedgkd.training import TrainingSettings, local_round


class FedSage(Algorithm):
    Settings = TrainingSettings

    def build_model(self, network: Network) -> Network:
        return replace(network, backbone="sage")

    def shares(self, parameter: str) -> bool:
        return True

    def client_step(self, clients: ClientBatch, download: Tensors) -> Tensors:
        return local_round(clients, download, self.model, self.settings, self.shares)

    def server_step(self, uploads: Tensors, server: ServerRound) -> Mixing:
        return Mixing(uniform(len(uploads["loss"])))
