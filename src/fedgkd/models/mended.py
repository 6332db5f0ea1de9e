"""FedSage+'s model: a generator of missing neighbours, and GraphSAGE on the graph that it mends."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedgkd.clients import GraphBatch, PartialStructure, Structure, Tensors
from fedgkd.clients.mending import NewNodes, SomeNewNodes
from fedgkd.models.layers import Input, Parameter, linear, linear_parameters, passed, project
from fedgkd.models.network import Classifier, Drop, Model, Network, active, part, under

GENERATOR = "generator."
ENCODER, MIX, FEATURES = f"{GENERATOR}encoder.", f"{GENERATOR}mix.", f"{GENERATOR}features."
NOISE = f"{GENERATOR}noise"
NEIGHBOUR, SELF = "weight_neighbour", "weight_self"


class MendedGraphs:
    """A batch of graphs with generated nodes, each hung on one of their own.

    Generated features are a linear map of codes that end in 1. They are never written out, which is cheap for wide
    features.

    Args:
        graph: The graphs without them.
        new: The generated nodes.
        codes: ``(clients, new nodes, hidden + 1)``.
        head: The map ``(clients, hidden + 1, features)``.
    """

    def __init__(self, graph: GraphBatch, new: NewNodes, codes: Tensor, head: Tensor) -> None:
        self.features, self.structure = graph.features, graph.structure
        self.new, self.codes, self.head = new, codes, head
        counts = new.counts.unsqueeze(-1).float()
        self.degree = (graph.structure.total(torch.ones_like(counts)) + counts).clamp(min=1.0)
        self._reached: dict[Structure, SomeNewNodes] = {}

    @cached_property
    def summed_codes(self) -> Tensor:
        """What every node's generated neighbours have together."""
        return self.new.to_owner(self.codes)

    def reached(self, last: PartialStructure) -> SomeNewNodes:
        """The generated neighbours of the nodes whose output is wanted."""
        if last not in self._reached:
            self._reached[last] = self.new.only(last.receives)
        return self._reached[last]


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

    def __call__(
        self, params: Tensors, graph: GraphBatch, dropout: Drop | None = None, last: Structure | None = None
    ) -> Tensor:
        return self.settled(params, graph)(params, graph, dropout, last)

    def settled(self, params: Tensors, graph: GraphBatch) -> Classifier:
        """The graphs are mended once."""
        z, missing = self.encode(params, graph)
        mended = self.mend(params, graph, z, NewNodes(self.counts(missing, graph)))

        def classify(
            params: Tensors, graph: GraphBatch, dropout: Drop | None = None, last: Structure | None = None
        ) -> Tensor:
            return self.classify(params, mended, dropout, last)

        return classify

    def encode(self, params: Tensors, graph: GraphBatch, dropout: Drop | None = None) -> tuple[Tensor, Tensor]:
        """Every node's code ``(clients, nodes, hidden)`` and how many neighbours it seems to miss."""
        own = part(params, ENCODER)
        h = self.encoder.embed(own, graph, dropout)
        return h.relu(), self.encoder.classify(own, h).squeeze(-1)

    def counts(self, missing: Tensor, graph: GraphBatch) -> Tensor:
        """How many neighbours a node gets: the nearest whole number that is allowed; none from a diverged generator."""
        return missing.detach().nan_to_num(0.0).round().clamp(0, self.neighbours).long() * graph.present

    def mend(self, params: Tensors, graph: GraphBatch, z: Tensor, new: NewNodes) -> MendedGraphs:
        """The graphs with these neighbours generated."""
        noise = params[NOISE].gather(1, new.slot.unsqueeze(-1).expand(-1, -1, self.hidden))
        codes = linear(new.of_owner(z) + noise, part(params, MIX)).relu()
        codes = torch.cat([codes, torch.ones_like(codes[..., :1])], dim=-1)
        head = torch.cat([params[f"{FEATURES}weight"], params[f"{FEATURES}bias"]], dim=1)
        return MendedGraphs(graph, new, codes, head)

    def classify(
        self, params: Tensors, graph: MendedGraphs, dropout: Drop | None = None, last: Structure | None = None
    ) -> Tensor:
        """Logits of the graphs' own nodes.

        A generated node's one neighbour is its owner, so in the last layer nobody else's are looked at.
        """
        last = last or graph.structure
        h: Input = graph.features
        new, made, given = graph.new, graph.codes, graph.summed_codes
        p = part(params, "convs.0.")
        # Generated nodes start from codes: for them the first layer's matrices have the head before them.
        of_new = {name: torch.bmm(graph.head, p[name]) for name in (NEIGHBOUR, SELF)}
        for depth in range(1, self.layers):
            sent = project(h, p[NEIGHBOUR])
            total = graph.structure.total(sent) + torch.bmm(given, of_new[NEIGHBOUR])
            own = total / graph.degree + project(h, p[SELF]) + p["bias"]
            if depth == self.layers - 1 and isinstance(last, PartialStructure):
                new = graph.reached(last)
                made = new.of_everyone(made)
            made = new.of_owner(sent) + torch.bmm(made, of_new[SELF]) + p["bias"]
            h, made = _active(own, made, new, graph.structure, dropout)
            given = new.to_owner(made)
            p = of_new = part(params, f"convs.{depth}.")
        total = passed(last, last.total, h, p[NEIGHBOUR]) + passed(last, last.own, given, of_new[NEIGHBOUR])
        degree = last.own(graph.degree).clamp(min=1.0)
        own = total / degree + passed(last, last.own, h, p[SELF]) + p["bias"]
        return self.network.readout(params, active(own, last, dropout))


def _active(
    own: Tensor, made: Tensor, new: NewNodes, structure: Structure, dropout: Drop | None
) -> tuple[Tensor, Tensor]:
    """ReLU and dropout, drawn for a client's own nodes; a generated one loses the channels that its owner loses."""
    own, made = own.relu(), made.relu()
    if dropout is None:
        return own, made
    kept = dropout(torch.ones_like(own), structure)
    return own * kept, made * new.of_owner(kept)
