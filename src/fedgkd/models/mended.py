"""FedSage+'s model: a generator of missing neighbours, and GraphSAGE on the graph that it mends."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from fedgkd.clients import Features, GraphBatch, LinearFeatures, StackedFeatures, Tensors
from fedgkd.clients.mending import MendedStructure, NewNodes
from fedgkd.models.layers import SAGE, Input, Parameter, linear, linear_parameters
from fedgkd.models.network import Drop, Model, Network, part, under

GENERATOR = "generator."
ENCODER, MIX, FEATURES = f"{GENERATOR}encoder.", f"{GENERATOR}mix.", f"{GENERATOR}features."
NOISE = f"{GENERATOR}noise"


class MendedGraphs(NamedTuple):
    """A batch of graphs with generated nodes after their own."""

    features: Features
    structure: MendedStructure
    new: NewNodes


@dataclass(frozen=True)
class MendedNetwork(Model):
    r"""Zhang et al. 2021: NeighGen generates the neighbours that a node seems to miss, then GraphSAGE classifies.

    The generator is a GraphSAGE encoder :math:`z_v`, a linear head for the number of missing neighbours, and a
    perceptron that turns :math:`z_v + \epsilon_k` into the features of the k-th one. Its parameters are called
    ``generator.…``; local training leaves them alone. The noise :math:`\epsilon_k` belongs to the parameters, so that
    the model is a function: the same graph is always mended alike.

    Args:
        neighbours: The most that a node can get.
    """

    num_features: int
    hidden: int
    layers: int
    num_classes: int
    neighbours: int = 5

    @cached_property
    def network(self) -> Network:
        return Network("sage", self.num_features, self.hidden, self.layers, self.num_classes)

    @cached_property
    def encoder(self) -> Network:
        """Its single output is the number of missing neighbours."""
        return Network("sage", self.num_features, self.hidden, self.layers, 1)

    @property
    def parameters(self) -> dict[str, Parameter]:
        return {
            **self.network.parameters,
            **under(ENCODER, self.encoder.parameters),
            **under(MIX, linear_parameters(self.hidden, self.hidden)),
            **under(FEATURES, linear_parameters(self.hidden, self.num_features)),
            NOISE: Parameter((self.neighbours, self.hidden)),
        }

    def trains(self, parameter: str) -> bool:
        return not parameter.startswith(GENERATOR)

    def __call__(self, params: Tensors, graph: GraphBatch, dropout: Drop | None = None) -> Tensor:
        z, missing = self.encode(params, graph)
        mended = self.mend(params, graph, z, self.counts(missing, graph))
        return self.classify(params, mended, dropout)

    def encode(self, params: Tensors, graph: GraphBatch, dropout: Drop | None = None) -> tuple[Tensor, Tensor]:
        """Every node's code ``(clients, nodes, hidden)`` and how many neighbours it seems to miss."""
        own = part(params, ENCODER)
        h = self.encoder.embed(own, graph, dropout)
        return h.relu(), self.encoder.classify(own, h).squeeze(-1)

    def counts(self, missing: Tensor, graph: GraphBatch) -> Tensor:
        """How many neighbours a node gets: the nearest whole number that is allowed; none from a diverged generator."""
        return missing.detach().nan_to_num(0.0).round().clamp(0, self.neighbours).long() * graph.present

    def mend(self, params: Tensors, graph: GraphBatch, z: Tensor, counts: Tensor) -> MendedGraphs:
        """The graphs with so many generated neighbours at every node."""
        new = NewNodes(counts)
        made = LinearFeatures(self.new_codes(params, z, new), params[f"{FEATURES}weight"], params[f"{FEATURES}bias"])
        return MendedGraphs(StackedFeatures(graph.features, made), MendedStructure(graph.structure, new), new)

    def new_codes(self, params: Tensors, z: Tensor, new: NewNodes) -> Tensor:
        """What the features of the generated nodes are a linear map of: ``(clients, new nodes, hidden)``."""
        noise = params[NOISE].gather(1, new.slot.unsqueeze(-1).expand(-1, -1, self.hidden))
        return linear(new.of_owner(z) + noise, part(params, MIX)).relu()

    def classify(self, params: Tensors, graph: MendedGraphs, dropout: Drop | None = None) -> Tensor:
        """Logits of the graphs' own nodes."""
        nodes = graph.new.counts.shape[1]
        h: Input = graph.features
        for depth in range(self.layers):
            h = SAGE().apply(h, graph.structure, part(params, f"convs.{depth}."))
            if depth < self.layers - 1:
                h = h.relu() if dropout is None else _drop(h.relu(), graph.new, dropout)
        assert isinstance(h, Tensor)
        return self.network.classify(params, h[:, :nodes], dropout)


def _drop(h: Tensor, new: NewNodes, dropout: Drop) -> Tensor:
    """Dropout is drawn for a client's own nodes; a generated one loses the channels that its owner loses."""
    own = dropout(torch.ones_like(h[:, : new.counts.shape[1]]))
    return h * torch.cat([own, new.of_owner(own)], dim=1)
