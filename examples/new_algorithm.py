"""A new algorithm in one file: every client keeps a share of its own model and takes the rest from the mean.

python examples/new_algorithm.py                                      beside FedAvg on Cora
cd examples && fedgkd run --algorithm new_algorithm:KeepAShare --set own_share=0.7
"""

from dataclasses import dataclass

import torch

import fedgkd
from fedgkd import ClientBatch, Mixing, ServerRound, Tensors, TrainingSettings, local_round, setting


@dataclass(frozen=True)
class KeepAShareSettings(TrainingSettings):
    own_share: float = setting(0.5, "share of a client's own model in its next one", low=0, high=1)


class KeepAShare(fedgkd.Algorithm):
    Settings = KeepAShareSettings

    def shares(self, parameter: str) -> bool:
        return True  # every weight is uploaded and mixed

    def client_step(self, clients: ClientBatch, download: Tensors) -> Tensors:
        return local_round(clients, download, self.model, self.settings, self.shares)

    def server_step(self, uploads: Tensors, server: ServerRound) -> Mixing:
        n, own = len(uploads["loss"]), self.settings.own_share
        return Mixing(own * torch.eye(n, dtype=torch.float64) + (1 - own) / n)


if __name__ == "__main__":
    for algorithm in ("fedavg", KeepAShare):
        result = fedgkd.run(algorithm, dataset="cora", clients=10, rounds=20).result()
        print(f"{result['algorithm']:>24}  {result['test_accuracy']:.2%}")
