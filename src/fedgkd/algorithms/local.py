"""Local: every client trains alone; nothing but its metrics leaves it."""

from __future__ import annotations

import torch

from fedgkd.algorithms.base import Algorithm, ServerRound
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.collaboration import Mixing
from fedgkd.training import TrainingSettings, local_round


class Local(Algorithm):
    Settings = TrainingSettings

    def shares(self, parameter: str) -> bool:
        return False

    def client_step(self, clients: ClientBatch, download: Tensors) -> Tensors:
        return local_round(clients, download, self.model, self.settings, self.shares)

    def server_step(self, uploads: Tensors, server: ServerRound) -> Mixing:
        return Mixing(torch.eye(len(uploads["loss"]), dtype=torch.float64))
