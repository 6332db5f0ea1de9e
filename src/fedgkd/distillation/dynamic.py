"""Dynamic distillation: every round anew, from the common start, against the client's current model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from fedgkd.clients import ClientBatch, DenseFeatures, SmallGraphs, Tensors
from fedgkd.distillation import by_hand
from fedgkd.distillation.features import TASK_FEATURES, task_feature
from fedgkd.distillation.synthetic import (
    SyntheticGraph,
    common_start,
    edge_noise,
    project_to_simplex,
    sample_edges,
)
from fedgkd.models import Network
from fedgkd.settings import setting
from fedgkd.training import Adam, TrainingSettings


@dataclass(frozen=True)
class DistillationSettings(TrainingSettings):
    nodes_per_class: int = setting(1, "synthetic nodes per class (m)", low=1)
    distill_steps: int = setting(1, "gradient steps on the synthetic graph (E_d)", low=0)
    distill_lr: float = setting(
        0.1, "step on the synthetic features, as a share of x0_scale, and on the soft labels", low=0, open_low=True
    )
    gamma: float = setting(0.75, "sparsity of the synthetic edges (γ)", low=0)
    tau_g: float = setting(1.0, "temperature of the sampled edges (τ_g)", low=0, open_low=True)
    edge_draws: int = setting(1, "draws of the synthetic edges that H, X‖H and predictions are averaged over", low=1)
    x0_scale: float | None = setting(
        None,
        "standard deviation of the synthetic start X0; none: 0.1/√features, near real rows; the paper says 1",
        low=0,
        open_low=True,
    )
    task_feature: str = setting(
        "predictions",
        "what describes a task: X‖H, X, H, Y, or the class distributions that are predicted",
        choices=TASK_FEATURES,
    )

    def start(self, clients: ClientBatch, network: Network) -> SyntheticGraph:
        start = common_start(
            clients.seed,
            len(clients),
            self.nodes_per_class,
            network.num_classes,
            network.num_features,
            self.feature_scale(network),
        )
        return SyntheticGraph(start.x.to(clients.device), start.y.to(clients.device))

    def feature_scale(self, network: Network) -> float:
        return 0.1 * network.num_features**-0.5 if self.x0_scale is None else self.x0_scale

    def described(self, graph: SyntheticGraph, noise: Sequence[Tensor], network: Network, params: Tensors) -> Tensor:
        """The task features of a distilled graph, their mean over as many draws of its edges as there is noise for."""
        with torch.no_grad():
            drawn = [sample_edges(graph.x, each, self.gamma, self.tau_g) for each in noise]
        features = [task_feature(self.task_feature, graph, edges, network, params) for edges in drawn]
        return torch.stack(features).mean(dim=0)


def distil(clients: ClientBatch, network: Network, params: Tensors, settings: DistillationSettings) -> Tensor:
    """The task features of every client's current model: ``(clients, rows, columns)``."""
    graph = settings.start(clients, network)
    steps, draws = settings.distill_steps, settings.edge_draws
    noise = [n.to(clients.device) for n in edge_noise(clients.seed, clients.round, steps + draws, graph.x.shape[1])]
    tensors = {"x": graph.x}
    optimiser = Adam(settings.distill_lr * settings.feature_scale(network), weight_decay=0.0)
    moments = optimiser.start(tensors)
    y = graph.y
    gradient = by_hand.loss_gradient if by_hand.fits(network) else loss_gradient
    for step in range(steps):
        log_p, grad = gradient(network, params, graph.x, y, noise[step], settings.gamma, settings.tau_g)
        optimiser.step(tensors, {"x": grad}, moments)
        # The loss falls fastest in y along log p; the projection keeps y a distribution.
        y = project_to_simplex(y + settings.distill_lr * log_p)
    return settings.described(SyntheticGraph(graph.x, y), noise[steps:], network, params)


def loss_gradient(
    network: Network, params: Tensors, x: Tensor, y: Tensor, noise: Tensor, gamma: float, tau_g: float
) -> tuple[Tensor, Tensor]:
    """Of the mean cross-entropy over a client's synthetic nodes: log-probabilities, and the gradient in ``x``."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        edges = sample_edges(x, noise, gamma, tau_g)
        log_p = log_softmax(network(params, SmallGraphs(DenseFeatures(x), edges)), dim=-1)
        (grad,) = torch.autograd.grad(-(y * log_p).sum(-1).mean(-1).sum(), x)
        return log_p.detach(), grad
