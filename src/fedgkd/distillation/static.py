"""Static distillation: once before training, by one-step gradient matching on the client's real graph.

Jin et al., "Condensing graphs via one-step gradient matching", KDD 2022: over fresh random models, the gradient of the
loss on the synthetic graph is brought close to that on the real graph. Labels stay as they start. Task features are
then taken with the common initial model, so that they never change.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from fedgkd.clients import ClientBatch, DenseFeatures, SmallGraphs, Tensors
from fedgkd.distillation.dynamic import DistillationSettings
from fedgkd.distillation.synthetic import edge_noise, sample_edges
from fedgkd.models import Network
from fedgkd.training import Adam
from fedgkd.training.local import training_loss


def distil_static(clients: ClientBatch, network: Network, settings: DistillationSettings, models: int) -> Tensor:
    """Task features ``(clients, rows, columns)`` from a graph matched over that many random models."""
    graph = settings.start(clients, network)
    rows, draws = graph.x.shape[1], settings.edge_draws
    noise = [n.to(clients.device) for n in edge_noise(clients.seed, 0, models + draws, rows)]
    tensors = {"x": graph.x}
    optimiser = Adam(settings.distill_lr * settings.feature_scale(network), weight_decay=0.0)
    moments = optimiser.start(tensors)
    for k in range(models):
        params = network.initial(clients.seed + 1 + k, len(clients), clients.device)
        target = _gradients(training_loss(clients, network, _leaves(params), None), params)
        x = graph.x.detach().requires_grad_()
        edges = sample_edges(x, noise[k], settings.gamma, settings.tau_g)
        log_p = log_softmax(network(_leaves(params), SmallGraphs(DenseFeatures(x), edges)), dim=-1)
        matched = _gradients(-(graph.y * log_p).sum(-1).mean(-1), params, create_graph=True)
        (grad,) = torch.autograd.grad(_distance(matched, target), x)
        optimiser.step(tensors, {"x": grad}, moments)
    start = network.initial(clients.seed, len(clients), clients.device)
    return settings.described(graph, noise[models:], network, start)


def _leaves(params: Tensors) -> Tensors:
    return {name: tensor.requires_grad_() for name, tensor in params.items()}


def _gradients(losses: Tensor, params: Tensors, create_graph: bool = False) -> list[Tensor]:
    return list(torch.autograd.grad(losses.sum(), list(params.values()), create_graph=create_graph))


def _distance(matched: list[Tensor], target: list[Tensor]) -> Tensor:
    """One minus the cosine of each output column's gradients, summed: the distance of Jin et al."""
    parts = [
        (1.0 - torch.cosine_similarity(ours, theirs, dim=1)).sum()
        for ours, theirs in zip(matched, target, strict=True)
        if ours.shape[1] > 1
    ]
    return torch.stack(parts).sum()
