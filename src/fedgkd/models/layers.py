"""Client-batched graph convolutions, as pure functions of their parameters.

Every layer has ``shapes`` (its parameters for one client, with how they start) and ``apply``. The input is either the
features of the graphs (first layer) or hidden states ``(clients, nodes, channels)``. Each equals the layer of the same
name in PyTorch Geometric with that client's weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgkd.clients import ConstantFeatures, Features, Structure, Tensors

Input = Features | Tensor


@dataclass(frozen=True)
class Parameter:
    """Shape of one client's parameter and its start: uniform in centre ± bound, all the centre if the bound is 0."""

    shape: tuple[int, ...]
    bound: float = 0.0
    centre: float = 0.0

    def draw(self, source: np.random.Generator) -> NDArray[np.float32]:
        low, high = self.centre - self.bound, self.centre + self.bound
        return source.uniform(low, high, self.shape).astype(np.float32)


def glorot(rows: int, columns: int, shape: tuple[int, ...] | None = None) -> Parameter:
    return Parameter(shape or (rows, columns), (6.0 / (rows + columns)) ** 0.5)


def project(h: Input, weight: Tensor) -> Tensor:
    """``h @ weight`` for every client."""
    return h.product(weight) if isinstance(h, Features) else torch.bmm(h, weight)


def passed(structure: Structure, messages: Callable[[Tensor], Tensor], h: Input, weight: Tensor) -> Tensor:
    """``messages(h @ weight)``, where ``messages`` is one of the structure's linear ways to pass them.

    Where few nodes receive any, hidden states are passed on before they are multiplied.
    """
    if structure.partial and isinstance(h, Tensor):
        return torch.bmm(messages(h), weight)
    return messages(project(h, weight))


def linear_parameters(inputs: int, outputs: int) -> dict[str, Parameter]:
    bound = inputs**-0.5
    return {"weight": Parameter((inputs, outputs), bound), "bias": Parameter((1, outputs), bound)}


def linear(h: Tensor, p: Tensors) -> Tensor:
    """``h @ weight + bias`` for every client."""
    return torch.baddbmm(p["bias"], h, p["weight"])


def few_outputs(h: Tensor, p: Tensors) -> Tensor:
    """The same computed as its transpose: several times as fast, since the kernel is slow on a short last axis."""
    return torch.baddbmm(p["bias"].mT, p["weight"].mT.contiguous(), h.mT).mT


def keep_where_above(x: Tensor, level: Tensor, threshold: float) -> Tensor:
    """``x`` where ``level`` is above the threshold, zero elsewhere; in place, and without a gradient.

    The kernel of ReLU's derivative does it in one pass, several times as fast as a comparison and a product.
    """
    torch.ops.aten.threshold_backward.grad_input(x, level, threshold, grad_input=x)
    return x


class Layer(ABC):
    @abstractmethod
    def parameters(self, inputs: int, outputs: int) -> dict[str, Parameter]:
        """The parameters of one client."""

    @abstractmethod
    def apply(self, h: Input, structure: Structure, p: Tensors) -> Tensor:
        """From ``(clients, nodes, inputs)`` to ``(clients, nodes, outputs)``, at the nodes that receive messages."""


class GCN(Layer):
    r"""Kipf & Welling 2017: :math:`\hat A X W + b` with the symmetric normalisation and self-loops."""

    def parameters(self, inputs: int, outputs: int) -> dict[str, Parameter]:
        return {"weight": glorot(inputs, outputs), "bias": Parameter((1, outputs))}

    def apply(self, h: Input, structure: Structure, p: Tensors) -> Tensor:
        if isinstance(h, ConstantFeatures):
            return structure.own(h.convolved(p["weight"])) + p["bias"]
        return passed(structure, structure.gcn, h, p["weight"]) + p["bias"]


class SAGE(Layer):
    r"""Hamilton et al. 2017, mean aggregator: :math:`X W_{self} + \text{mean}_{u \in N(v)} x_u W_{neigh} + b`."""

    def parameters(self, inputs: int, outputs: int) -> dict[str, Parameter]:
        return {
            "weight_neighbour": glorot(inputs, outputs),
            "weight_self": glorot(inputs, outputs),
            "bias": Parameter((1, outputs)),
        }

    def apply(self, h: Input, structure: Structure, p: Tensors) -> Tensor:
        from_neighbours = passed(structure, structure.mean, h, p["weight_neighbour"])
        return from_neighbours + passed(structure, structure.own, h, p["weight_self"]) + p["bias"]


class GIN(Layer):
    r"""Xu et al. 2019 with ε = 0: a two-layer perceptron of :math:`x_v + \sum_{u \in N(v)} x_u`."""

    def parameters(self, inputs: int, outputs: int) -> dict[str, Parameter]:
        return {
            "weight_1": glorot(inputs, outputs),
            "bias_1": Parameter((1, outputs)),
            "weight_2": glorot(outputs, outputs),
            "bias_2": Parameter((1, outputs)),
        }

    def apply(self, h: Input, structure: Structure, p: Tensors) -> Tensor:
        summed = passed(structure, lambda x: structure.own(x) + structure.total(x), h, p["weight_1"])
        hidden = (summed + p["bias_1"]).relu()
        return torch.bmm(hidden, p["weight_2"]) + p["bias_2"]


class GAT(Layer):
    """Veličković et al. 2018: attention over neighbours and self; the heads' results are concatenated."""

    heads = 4
    slope = 0.2

    def parameters(self, inputs: int, outputs: int) -> dict[str, Parameter]:
        channels = outputs // self.heads
        attention = glorot(channels, 1, (self.heads, channels))
        return {
            "weight": glorot(inputs, outputs),
            "attention_source": attention,
            "attention_target": attention,
            "bias": Parameter((1, outputs)),
        }

    def apply(self, h: Input, structure: Structure, p: Tensors) -> Tensor:
        projected = project(h, p["weight"])
        clients, nodes, _ = projected.shape
        by_head = projected.view(clients, nodes, self.heads, -1)
        source = (by_head * p["attention_source"].unsqueeze(1)).sum(-1)
        target = (by_head * p["attention_target"].unsqueeze(1)).sum(-1)
        return structure.attend(by_head, source, target, self.slope).flatten(2) + p["bias"]
