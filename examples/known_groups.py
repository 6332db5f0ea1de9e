"""What a relation without errors would be worth: clients that are told who was drawn from the same part of the graph.

Only for overlapping partitions, where five neighbours in the list of clients share a part. Training is FedGKD's.

cd examples && fedgkd run --algorithm known_groups:KnownGroups --dataset cora --clients 30 --overlapping
"""

from dataclasses import dataclass

import torch

import fedgkd
from fedgkd import ClientBatch, Mixing, ServerRound, Tensors, TrainingSettings, local_round, setting


@dataclass(frozen=True)
class KnownGroupsSettings(TrainingSettings):
    proximal: float = setting(1e-3, "weight of the squared distance to the received model", low=0)
    own_share: float = setting(0.4, "share of a client's own model in its next one", low=0, high=1)
    group_share: float = setting(2 / 3, "share of the others of its group in the rest", low=0, high=1)
    group_size: int = setting(5, "clients in a row that form a group", low=1)


class KnownGroups(fedgkd.Algorithm):
    Settings = KnownGroupsSettings

    def shares(self, parameter: str) -> bool:
        return True

    def client_step(self, clients: ClientBatch, download: Tensors) -> Tensors:
        return local_round(clients, download, self.model, self.settings, self.shares, self.settings.proximal)

    def server_step(self, uploads: Tensors, server: ServerRound) -> Mixing:
        own, group = self.settings.own_share, (1 - self.settings.own_share) * self.settings.group_share
        group_of = torch.tensor(server.cohort) // self.settings.group_size
        myself = torch.eye(len(group_of), dtype=torch.float64)
        mates = (group_of[:, None] == group_of).double() - myself
        strangers = 1 - mates - myself
        weights = own * myself + group * _mean_over(mates) + (1 - own - group) * _mean_over(strangers)
        return Mixing(weights / weights.sum(dim=1, keepdim=True))  # who has no mates, or meets no strangers


def _mean_over(members: torch.Tensor) -> torch.Tensor:
    return members / members.sum(dim=1, keepdim=True).clamp(min=1)
