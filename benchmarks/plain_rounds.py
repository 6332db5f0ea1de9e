"""Whole rounds in the plain way: FedAvg, and FedGKD with its distillation, one client after the other.

No checkpoint is written; everything else that our rounds do is done.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax, normalize
from torch_geometric.nn import DenseGCNConv

from benchmarks.plain import PlainClient, PlainFederation, PlainGCN, State
from fedgkd.distillation.synthetic import common_start, edge_noise, project_to_simplex
from fedgkd.models import Network


class PlainRounds:
    """Rounds of ``fedavg`` or ``fedgkd`` over a plain federation."""

    def __init__(self, federation: PlainFederation, algorithm: str, settings: Any, network: Network, seed: int) -> None:
        self._federation = federation
        self._algorithm = algorithm
        self._settings, self._network, self._seed = settings, network, seed
        self._round = 0
        self._relations: Tensor | float = 0.0

    def step(self) -> None:
        """Score the received models, train, score again, and mix."""
        self._round += 1
        federation = self._federation
        for client, received in zip(federation.clients, federation.received, strict=True):
            client.model.load_state_dict(received)
            client.evaluate()
            client.train(received, self._settings.local_epochs)
            client.evaluate()
        shares = self.shares()
        uploads = [client.model.state_dict() for client in federation.clients]
        federation.received = [_mixture(uploads, row) for row in shares]

    def shares(self) -> Tensor:
        """Row i says how much of every model client i gets."""
        n = len(self._federation.clients)
        if self._algorithm == "fedavg":
            return torch.full((n, n), 1.0 / n)
        features = torch.stack([self.task_feature(client) for client in self._federation.clients])
        columns = normalize(features - features.mean(dim=1, keepdim=True), dim=1).flatten(1).double()
        whole = normalize(features.flatten(1), dim=1).double()
        relation = 0.75 * (whole @ whole.T) + 0.25 * (columns @ columns.T / features.shape[2])
        relation = self._averaged(relation.fill_diagonal_(1.0))
        kernel = torch.linalg.matrix_exp(self._settings.tau * relation)
        return torch.softmax(self._settings.tau_s * kernel, dim=1).float()

    def _averaged(self, relation: Tensor) -> Tensor:
        """The mean over all rounds so far."""
        self._relations = self._relations + relation
        return self._relations / self._round

    def task_feature(self, client: PlainClient) -> Tensor:
        """Dynamic distillation of one client: steps on features and soft labels, then predicted distributions."""
        settings, network = self._settings, self._network
        scale = settings.feature_scale(network)
        sizes = (settings.nodes_per_class, network.num_classes, network.num_features)
        start = common_start(self._seed, 1, *sizes, scale)
        x, y = start.x[0].clone().requires_grad_(), start.y[0]
        noise = edge_noise(self._seed, self._round, settings.distill_steps + 1, len(x))
        optimiser = torch.optim.Adam([x], settings.distill_lr * scale)
        dense = DenseTwin(client.model)
        for step in range(settings.distill_steps):
            optimiser.zero_grad()
            log_p = log_softmax(dense(x, _edges(x, noise[step], settings)), dim=-1)
            loss = -(y * log_p).sum(-1).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            y = project_to_simplex(y + settings.distill_lr * log_p.detach())
        with torch.no_grad():
            predicted = dense(x, _edges(x, noise[-1], settings)).softmax(dim=-1)
            return predicted.view(network.num_classes, -1, network.num_classes).mean(dim=1)


class DenseTwin(nn.Module):
    """A model's weights, frozen, on graphs whose adjacency is dense and has a gradient."""

    def __init__(self, model: PlainGCN) -> None:
        super().__init__()
        self.conv1 = DenseGCNConv(model.conv1.in_channels, model.conv1.out_channels)
        self.conv2 = DenseGCNConv(model.conv2.in_channels, model.conv2.out_channels)
        self.readout = nn.Linear(model.readout.in_features, model.readout.out_features)
        self.load_state_dict(model.state_dict())
        self.requires_grad_(False)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """Logits."""
        h = self.conv2(self.conv1(x, adjacency).relu(), adjacency)[0]
        return self.readout(h.relu())


def _edges(x: Tensor, noise: Tensor, settings: Any) -> Tensor:
    soft = torch.sigmoid((x @ x.T - settings.gamma + noise) / settings.tau_g)
    return (soft > 0.5).float() + soft - soft.detach()


def _mixture(uploads: list[State], shares: Tensor) -> State:
    return {name: sum(w * state[name] for w, state in zip(shares, uploads, strict=True)) for name in uploads[0]}
