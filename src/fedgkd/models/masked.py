"""A network whose weight matrices each have a mask: one part of the weights can be shared, the other kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property

from torch import Tensor
from torch.nn.functional import hardshrink

from fedgkd.clients import GraphView, Structure, Tensors
from fedgkd.models.layers import Parameter
from fedgkd.models.network import Drop, Model, Network, part

MASK = "masks."


@dataclass(frozen=True)
class MaskedNetwork(Model):
    r"""A :class:`Network` with effective weights :math:`W \circ M`.

    The parameters are those of the network and, for each weight matrix of it, a mask of the same shape called
    ``masks.`` and the matrix's name. Masks start at one, so that the start is that of the plain network. While the
    model is used, not trained, entries of a mask of at most ``threshold`` count as zero.
    """

    backbone: str
    num_features: int
    hidden: int
    layers: int
    num_classes: int
    threshold: float = 1e-3

    @classmethod
    def of(cls, network: Network) -> MaskedNetwork:
        return cls(**asdict(network))

    @cached_property
    def network(self) -> Network:
        return Network(self.backbone, self.num_features, self.hidden, self.layers, self.num_classes)

    @property
    def parameters(self) -> dict[str, Parameter]:
        plain = self.network.parameters
        return plain | {MASK + name: Parameter(p.shape, centre=1.0) for name, p in plain.items() if _is_matrix(name)}

    def __call__(
        self, params: Tensors, graph: GraphView, dropout: Drop | None = None, last: Structure | None = None
    ) -> Tensor:
        return self.network(self.effective(params, pruned=dropout is None), graph, dropout, last)

    def effective(self, params: Tensors, pruned: bool) -> Tensors:
        """The weights that the network works with; ``pruned`` drops what the masks have all but closed."""
        masks = part(params, MASK)
        if pruned:
            masks = {name: hardshrink(mask, self.threshold) for name, mask in masks.items()}
        return {n: params[n] * masks[n] if n in masks else params[n] for n in self.network.parameters}


def _is_matrix(parameter: str) -> bool:
    """Layers call their matrices ``weight`` or ``weight_…``; biases and attention vectors have no mask."""
    return parameter.rpartition(".")[2].startswith("weight")
