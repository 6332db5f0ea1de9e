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
from fedgkd.models.mended import GENERATOR, NOISE, MendedNetwork
from fedgkd.settings import setting
from fedgkd.training.local import classification_loss
from fedgkd.training.optimiser import Adam
from fedgkd.training.settings import TrainingSettings


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
        candidates: Up to ``neighbours`` of them, ``(visible nodes, neighbours)``, as nodes of the graph that was
            impaired. Who has fewer has them several times, which does not change the nearest.
    """

    graph: Graph
    counts: NDArray[np.int64]
    candidates: NDArray[np.int64]


def impair(graph: Graph, share: float, neighbours: int, draw: np.random.Generator) -> Impaired:
    """Hide a random share of the nodes that are not trained on."""
    free = np.arange(graph.num_nodes) if graph.train_mask is None else np.flatnonzero(~graph.train_mask)
    hidden = draw.permutation(free)[: round(share * len(free))]
    visible = np.setdiff1d(np.arange(graph.num_nodes), hidden)
    lost = graph.simple_adjacency()[visible][:, hidden]
    lost.sort_indices()
    counts = np.diff(lost.indptr).astype(np.int64)
    places = lost.indptr[:-1, None] + np.arange(neighbours) % np.maximum(counts, 1)[:, None]
    # Who misses nobody may point anywhere, as it gets no neighbours.
    candidates = np.append(hidden[lost.indices], 0)[np.minimum(places, lost.nnz)]
    return Impaired(graph.subgraph(visible), np.minimum(counts, neighbours), candidates)


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
        self._whole = clients.graph
        graphs, draws = clients.graph.graphs, clients.streams("hidden nodes")
        sizes = (settings.hidden_share, settings.neighbours)
        impaired = [impair(graph, *sizes, draw) for graph, draw in zip(graphs, draws, strict=True)]
        visible = ClientBatch(clients.ids, [each.graph for each in impaired], clients.seed, clients.device)
        self.graph = visible.graph
        self._dropout = Dropout(visible, settings.dropout)
        self._noise = clients.streams("neighbour noise")
        self._counts = self.graph.padded([each.counts for each in impaired], np.int64)
        self._new = NewNodes(self._counts)
        # Nodes of the whole graphs are numbered over the batch.
        numbers = [row * self._whole.padded_nodes + each.candidates for row, each in enumerate(impaired)]
        self._candidates = self._new.of_owner(self.graph.padded(numbers, np.int64)).flatten(0, 1)[self._new.real]
        self._squares = self._whole.padded([_squares(graph) for graph in graphs], np.float32)
        mean_square = self._squares.sum(dim=1) / self._whole.present.sum(dim=1)
        scale = mean_square * self._counts.sum(dim=1)
        self._feature_scale = scale.where(scale > 0, 1.0)

    def draw_noise(self, model: MendedNetwork) -> Tensor:
        """Fresh noise for every client, from its own stream."""
        drawn = [draw.standard_normal((model.neighbours, model.hidden), np.float32) for draw in self._noise]
        return torch.from_numpy(np.stack(drawn)).to(self.graph.device)

    def losses(self, params: Tensors, model: MendedNetwork) -> Tensor:
        """The sum of the three losses of each client."""
        z, missing = model.encode(params, self.graph, self._dropout)
        # As many neighbours as are missing, so that their features are learnt whatever the predicted number.
        mended, training = model.mend(params, self.graph, z, self._new), self.graph.training
        logits = model.classify(params, mended, self._dropout, training.structure)
        features = self.feature_loss(mended.head, mended.codes)
        return self.count_loss(missing) + features + classification_loss(training, logits)

    def count_loss(self, missing: Tensor) -> Tensor:
        """Smooth L1 distance of the predicted numbers of missing neighbours, the mean over the visible nodes."""
        each = smooth_l1_loss(missing, self._counts.to(missing.dtype), reduction="none") * self.graph.present
        return each.sum(dim=1) / self.graph.present.sum(dim=1)

    def feature_loss(self, head: Tensor, codes: Tensor) -> Tensor:
        r"""Squared distance to the nearest hidden neighbour, as a share of the mean square of the client's features.

        A generated feature vector is :math:`cF` with the head :math:`F` and a code :math:`c`. In

        .. math:: \lVert cF - x \rVert^2 = c F F^\top c^\top - 2 c F x^\top + \lVert x \rVert^2

        everything is as short as the codes, so no features are written out.
        """
        clients, width, _ = codes.shape
        rows = self._new.real
        own = (codes @ (head @ head.transpose(1, 2)) * codes).sum(-1).flatten()[rows]
        seen = self._whole.features.product(head.transpose(1, 2)).flatten(0, 1)
        made, squares = codes.flatten(0, 1).index_select(0, rows), self._squares.flatten()

        def other(node: Tensor) -> Tensor:
            return squares[node] - 2 * (made * seen.index_select(0, node)).sum(-1)

        with torch.no_grad():
            nearest = torch.stack([other(node) for node in self._candidates.unbind(1)], dim=1).argmin(dim=1)
        distance = own + other(self._candidates.gather(1, nearest.unsqueeze(1)).squeeze(1))
        return distance.new_zeros(clients).index_add(0, rows // width, distance) / self._feature_scale


def _squares(graph: Graph) -> NDArray[np.float32]:
    """Squared norm of every node's features."""
    x = graph.x
    return np.asarray(x.multiply(x).sum(axis=1) if isinstance(x, sp.csr_array) else np.square(x).sum(axis=1))
