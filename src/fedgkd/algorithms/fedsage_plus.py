"""FedSage+: Zhang et al., "Subgraph federated learning with missing neighbor generation", NeurIPS 2021.

Before the first round every client trains a generator of missing neighbours (NeighGen) on its own graph, with some
nodes hidden from it, and mends its graph with it. Then FedAvg of GraphSAGE on the mended graphs.

In the authors' release the generators also learn from the features of other clients' nodes, which are handed over raw.
Here nothing of the generator leaves a client: it learns from the client's own graph alone. What else differs is in
docs/algorithms/fedsage.md.
"""

from __future__ import annotations

import torch

from fedgkd.algorithms.base import Algorithm, ServerRound
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.collaboration import Mixing, uniform
from fedgkd.models import MendedNetwork, Network
from fedgkd.models.mended import GENERATOR
from fedgkd.training import local_round
from fedgkd.training.generator import GeneratorSettings, train_generator
from fedgkd.training.local import personal_model

GENERATED = "generated"


class FedSagePlus(Algorithm):
    Settings = GeneratorSettings
    extra_uploads = (GENERATED,)
    model: MendedNetwork

    def build_model(self, network: Network) -> MendedNetwork:
        sizes = (network.num_features, network.hidden, network.layers, network.num_classes)
        return MendedNetwork(*sizes, neighbours=self.settings.neighbours)

    @property
    def start_epochs(self) -> int:
        epochs: int = self.settings.generator_epochs
        return epochs

    def start(self, clients: ClientBatch) -> None:
        super().start(clients)
        model = personal_model(clients)
        with clients.timed("generator"), torch.no_grad():
            for name, tensor in train_generator(clients, self.model, self.settings).items():
                model[name].copy_(tensor)
            _, missing = self.model.encode(model, clients.graph)
        clients.state[GENERATED] = self.model.counts(missing, clients.graph).sum(dim=1, keepdim=True)

    def shares(self, parameter: str) -> bool:
        return not parameter.startswith(GENERATOR)

    def client_step(self, clients: ClientBatch, download: Tensors) -> Tensors:
        upload = local_round(clients, download, self.model, self.settings, self.shares)
        upload[GENERATED] = clients.state[GENERATED]
        return upload

    def server_step(self, uploads: Tensors, server: ServerRound) -> Mixing:
        facts = {"generated_neighbours": uploads[GENERATED].flatten().tolist()}
        return Mixing(uniform(len(uploads["loss"])), facts=facts)
