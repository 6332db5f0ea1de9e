"""FedStar's model: one channel for where a node stands in the graph, one for what it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from fedgkd.clients import GraphBatch, JoinedFeatures, Structure, Tensors
from fedgkd.models.layers import GCN, Input, Parameter, few_outputs, linear, linear_parameters
from fedgkd.models.network import BACKBONES, READOUT, Drop, Model, Network, active, part, under

STRUCTURE = "structure."
FEATURE = "feature."


@dataclass(frozen=True)
class TwoChannel(Model):
    r"""Tan et al. 2023: a structure channel :math:`s` that the feature channel :math:`x` looks at in every layer.

    :math:`s_0` is a linear map of the structure encoding, :math:`x_0` the node features. In each layer

    .. math:: x_{l+1} = \text{ReLU}(\text{conv}([x_l \,\Vert\, s_l])), \quad s_{l+1} = \tanh(\text{GCN}(s_l))

    with dropout on :math:`x` only, and the readout sees :math:`[x_L \,\Vert\, s_L]` through a linear layer, ReLU and
    dropout. Parameters of the structure channel are called ``structure.…``, those of the feature channel ``feature.…``.

    Args:
        backbone: Convolution of the feature channel; the structure channel is always a GCN.
        walk_steps, max_degree: Sizes of the structure encoding.
    """

    backbone: str
    num_features: int
    hidden: int
    layers: int
    num_classes: int
    walk_steps: int = 16
    max_degree: int = 16

    @classmethod
    def of(cls, network: Network, walk_steps: int, max_degree: int) -> TwoChannel:
        """The two-channel counterpart of a network."""
        return cls(**asdict(network), walk_steps=walk_steps, max_degree=max_degree)

    @property
    def parameters(self) -> dict[str, Parameter]:
        hidden = self.hidden
        named = under(f"{STRUCTURE}embed.", linear_parameters(self.walk_steps + self.max_degree, hidden))
        inputs = self.num_features
        for depth in range(self.layers):
            named |= under(f"{STRUCTURE}convs.{depth}.", GCN().parameters(hidden, hidden))
            convolution = BACKBONES[self.backbone].parameters(inputs + hidden, hidden)
            named |= under(f"{FEATURE}convs.{depth}.", convolution)
            inputs = hidden
        named |= under(f"{FEATURE}join.", linear_parameters(2 * hidden, hidden))
        return named | under(READOUT, linear_parameters(hidden, self.num_classes))

    def __call__(
        self, params: Tensors, graph: GraphBatch, dropout: Drop | None = None, last: Structure | None = None
    ) -> Tensor:
        last = last or graph.structure
        s = linear(graph.encoding(self.walk_steps, self.max_degree), part(params, f"{STRUCTURE}embed."))
        both: Input = JoinedFeatures(graph.features, s)
        for depth in range(self.layers):
            structure = last if depth == self.layers - 1 else graph.structure
            own = part(params, f"{FEATURE}convs.{depth}.")
            x = active(BACKBONES[self.backbone].apply(both, structure, own), structure, dropout)
            s = GCN().apply(s, structure, part(params, f"{STRUCTURE}convs.{depth}.")).tanh()
            both = torch.cat([x, s], dim=-1)
        assert isinstance(both, Tensor)
        h = active(linear(both, part(params, f"{FEATURE}join.")), last, dropout)
        return few_outputs(h, part(params, READOUT))
