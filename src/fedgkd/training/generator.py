"""Training of FedSage+'s generator: some nodes are hidden from it, and it learns who is missing where."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from fedgkd.clients import ClientBatch, Tensors
from fedgkd.clients.mending import NewNodes
from fedgkd.data.graph import Graph
from fedgkd.models import Dropout
from fedgkd.models.layers import linear
from fedgkd.models.mended import FEATURES, GENERATOR, NOISE, MendedNetwork
from fedgkd.models.network import part
from fedgkd.settings import setting
from fedgkd.training.local import TrainingSettings, classification_loss
from fedgkd.training.optimiser import Adam


@dataclass(frozen=True)
class GeneratorSettings(TrainingSettings):
    neighbours: int = setting(5, "generated neighbours of a node at most", low=1)
    hidden_share: float = setting(
        0.5, "share of the nodes outside the training split that are hidden from the generator", low=0, high=1
    )
    generator_epochs: int = setting(50, "full-batch epochs in which a client trains its generator", low=0)


@dataclass(frozen=True)
class Impaired:
    """A graph without its hidden nodes, and what is missing from it.

    Args:
        graph: The visible nodes and the edges among them.
        counts: Hidden neighbours of every visible node, ``neighbours`` at most.
        candidates: Up to ``neighbours`` of them, ``(visible nodes, neighbours)``, as rows of ``hidden``. Who has fewer
            has them several times, which does not change the nearest.
        hidden: Features of the hidden nodes.
    """

    graph: Graph
    counts: NDArray[np.int64]
    candidates: NDArray[np.int64]
    hidden: NDArray[np.float32]


def impair(graph: Graph, share: float, neighbours: int, draw: np.random.Generator) -> Impaired:
    """Hide a random share of the nodes that are not trained on."""
    free = np.arange(graph.num_nodes) if graph.train_mask is None else np.flatnonzero(~graph.train_mask)
    hidden = draw.permutation(free)[: round(share * len(free))]
    visible = np.setdiff1d(np.arange(graph.num_nodes), hidden)
    lost = graph.simple_adjacency()[visible][:, hidden]
    lost.sort_indices()
    counts = np.diff(lost.indptr).astype(np.int64)
    places = lost.indptr[:-1, None] + np.arange(neighbours) % np.maximum(counts, 1)[:, None]
    # Nodes that miss nobody point anywhere: they get no neighbours.
    candidates = np.append(lost.indices, 0)[np.minimum(places, lost.nnz)].astype(np.int64)
    x = graph.x[hidden]
    dense = x.toarray() if isinstance(x, sp.csr_array) else x
    return Impaired(graph.subgraph(visible), np.minimum(counts, neighbours), candidates, dense)


@torch.enable_grad()
def train_generator(clients: ClientBatch, model: MendedNetwork, settings: GeneratorSettings) -> Tensors:
    """Every client's generator, trained on its own graph alone: the ``generator.…`` parameters of the model.

    The loss adds with equal weights the smooth L1 distance of the predicted numbers, the squared distance of generated
    features to the nearest hidden neighbour, and the cross-entropy of a network on the mended graph, which is thrown
    away.
    """
    lessons = Lessons(clients, settings)
    params = model.initial(clients.seed, len(clients), clients.device)
    leaves = {name: tensor for name, tensor in params.items() if name != NOISE}
    optimiser = Adam(settings.lr, settings.weight_decay)
    moments = optimiser.start(leaves)
    for _ in range(settings.generator_epochs):
        params[NOISE] = lessons.draw_noise(model)
        for tensor in leaves.values():
            tensor.requires_grad_()
        losses = lessons.losses(params, model)
        grads = torch.autograd.grad(losses.sum(), list(leaves.values()))
        optimiser.step(leaves, dict(zip(leaves, grads, strict=True)), moments)
    params[NOISE] = lessons.draw_noise(model)
    return {name: tensor.detach() for name, tensor in params.items() if name.startswith(GENERATOR)}


class Lessons:
    """The impaired graphs of a batch of clients, and how wrong a generator is about them."""

    def __init__(self, clients: ClientBatch, settings: GeneratorSettings) -> None:
        graphs, draws = clients.graph.graphs, clients.streams("hidden nodes")
        sizes = (settings.hidden_share, settings.neighbours)
        impaired = [impair(graph, *sizes, draw) for graph, draw in zip(graphs, draws, strict=True)]
        visible = ClientBatch(clients.ids, [each.graph for each in impaired], clients.seed, clients.device)
        self.graph = visible.graph
        self._dropout = Dropout(visible, settings.dropout)
        self._noise = clients.streams("neighbour noise")
        self._counts = self.graph.padded([each.counts for each in impaired], np.int64)
        self._new = NewNodes(self._counts)
        # Hidden nodes are numbered over the batch.
        firsts = np.cumsum([0, *(len(each.hidden) for each in impaired)])
        numbers = [first + each.candidates for first, each in zip(firsts[:-1], impaired, strict=True)]
        self._candidates = self._new.of_owner(self.graph.padded(numbers, np.int64)).flatten(0, 1)[self._new.real]
        self._hidden = torch.from_numpy(np.concatenate([each.hidden for each in impaired])).to(clients.device)
        norms = torch.tensor([_mean_square(graph) for graph in graphs], device=clients.device)
        self._feature_scale = norms * self._counts.sum(dim=1)

    def draw_noise(self, model: MendedNetwork) -> Tensor:
        """Fresh noise for every client, from its own stream."""
        drawn = [draw.standard_normal((model.neighbours, model.hidden), np.float32) for draw in self._noise]
        return torch.from_numpy(np.stack(drawn)).to(self.graph.device)

    def losses(self, params: Tensors, model: MendedNetwork) -> Tensor:
        """The sum of the three losses of each client."""
        z, missing = model.encode(params, self.graph, self._dropout)
        # As many neighbours as are missing, so that their features are learnt whatever the predicted number.
        mended = model.mend(params, self.graph, z, self._counts)
        logits = model.classify(params, mended, self._dropout)
        features = linear(model.new_codes(params, z, self._new), part(params, FEATURES))
        return self._count_loss(missing) + self._feature_loss(features) + classification_loss(self.graph, logits)

    def _count_loss(self, missing: Tensor) -> Tensor:
        each = smooth_l1_loss(missing, self._counts.to(missing.dtype), reduction="none") * self.graph.present
        return each.sum(dim=1) / self.graph.present.sum(dim=1)

    def _feature_loss(self, features: Tensor) -> Tensor:
        """Squared distance to the nearest hidden neighbour, as a share of the mean square of the client's features."""
        clients, width, _ = features.shape
        made = features.flatten(0, 1)[self._new.real]
        with torch.no_grad():
            distances = [(made - self._hidden[row]).square().sum(-1) for row in self._candidates.unbind(1)]
            best = torch.stack(distances, dim=1).argmin(dim=1, keepdim=True)
            nearest = self._hidden[self._candidates.gather(1, best).squeeze(1)]
        wrong = made.new_zeros(clients).index_add(0, self._new.real // width, (made - nearest).square().sum(-1))
        return wrong / self._feature_scale.where(self._feature_scale > 0, 1.0)


def _mean_square(graph: Graph) -> float:
    """Mean squared norm of a node's features."""
    values = graph.x.data if isinstance(graph.x, sp.csr_array) else graph.x
    return float(np.square(values, dtype=np.float64).sum()) / graph.num_nodes
