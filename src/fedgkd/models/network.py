"""GNNs for a batch of clients with a model each."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedgkd.clients import GraphBatch, GraphView, Structure, Tensors
from fedgkd.errors import SettingError
from fedgkd.models.layers import GAT, GCN, GIN, SAGE, Input, Layer, Parameter, few_outputs, linear_parameters
from fedgkd.randomness import stream

BACKBONES: dict[str, Layer] = {"gcn": GCN(), "sage": SAGE(), "gat": GAT(), "gin": GIN()}

READOUT = "readout."


class Drop(Protocol):
    def __call__(self, h: Tensor, structure: Structure) -> Tensor:
        """Dropout of what the nodes that receive messages in ``structure`` have."""


class Classifier(Protocol):
    def __call__(
        self, params: Tensors, graph: GraphBatch, dropout: Drop | None = None, last: Structure | None = None
    ) -> Tensor:
        """As a model's."""


class Model(ABC):
    """A node classifier: a pure function of named parameters ``(clients, …)`` and graphs.

    Subclasses are frozen dataclasses whose fields say all there is to know, so that a file can describe a model.
    """

    num_features: int
    num_classes: int

    @property
    @abstractmethod
    def parameters(self) -> dict[str, Parameter]:
        """Every parameter of one client's model."""

    @abstractmethod
    def __call__(
        self, params: Tensors, graph: GraphBatch, dropout: Drop | None = None, last: Structure | None = None
    ) -> Tensor:
        """Logits ``(clients, nodes, classes)``; without ``dropout`` the model is being used, not trained.

        Args:
            last: The structure of the last layer, where the output of some nodes is enough.
        """

    @property
    def sizes(self) -> dict[str, int]:
        """How many numbers each parameter of one client's model is."""
        return {name: math.prod(parameter.shape) for name, parameter in self.parameters.items()}

    def trains(self, parameter: str) -> bool:
        """Whether local training moves that parameter; the others stay as an algorithm's start left them."""
        return True

    def settled(self, params: Tensors, graph: GraphBatch) -> Classifier:
        """This model on these graphs, with all worked out that local training does not change."""
        return self

    def initial(self, seed: int, clients: int, device: torch.device | str = "cpu") -> Tensors:
        """The same starting weights for every client."""
        draw = stream(seed, "initial weights")
        start: Tensors = {}
        for name, parameter in self.parameters.items():
            one = torch.from_numpy(parameter.draw(draw)).to(device)
            start[name] = one.repeat(clients, *(1 for _ in parameter.shape))
        return start


@dataclass(frozen=True)
class Network(Model):
    """``layers`` graph convolutions of width ``hidden``, each followed by ReLU and dropout, then a linear readout.

    Parameters are called ``convs.0.weight``, …, ``readout.weight``, ``readout.bias``.
    """

    backbone: str
    num_features: int
    hidden: int
    layers: int
    num_classes: int

    def __post_init__(self) -> None:
        if self.backbone == "gat" and self.hidden % GAT.heads:
            raise SettingError(f"hidden must be a multiple of gat's {GAT.heads} attention heads, not {self.hidden}")

    @property
    def parameters(self) -> dict[str, Parameter]:
        named: dict[str, Parameter] = {}
        inputs = self.num_features
        for depth in range(self.layers):
            named |= under(f"convs.{depth}.", BACKBONES[self.backbone].parameters(inputs, self.hidden))
            inputs = self.hidden
        return named | under(READOUT, linear_parameters(self.hidden, self.num_classes))

    def __call__(
        self, params: Tensors, graph: GraphView, dropout: Drop | None = None, last: Structure | None = None
    ) -> Tensor:
        h = self.embed(params, graph, dropout, last)
        return self.readout(params, active(h, last or graph.structure, dropout))

    def embed(
        self, params: Tensors, graph: GraphView, dropout: Drop | None = None, last: Structure | None = None
    ) -> Tensor:
        """Output of the last convolution, before its ReLU: ``(clients, nodes, hidden)``."""
        first = self._convolve(0, params, graph.features, graph, last)
        return self.embed_from(params, graph, first, dropout, last)

    def embed_from(
        self,
        params: Tensors,
        graph: GraphView,
        first: Tensor,
        dropout: Drop | None = None,
        last: Structure | None = None,
    ) -> Tensor:
        """The same from the output of the first convolution, before its ReLU."""
        h = first
        for depth in range(1, self.layers):
            h = self._convolve(depth, params, active(h, graph.structure, dropout), graph, last)
        return h

    def _convolve(self, depth: int, params: Tensors, h: Input, graph: GraphView, last: Structure | None) -> Tensor:
        structure = last if last is not None and depth == self.layers - 1 else graph.structure
        return BACKBONES[self.backbone].apply(h, structure, part(params, f"convs.{depth}."))

    def classify(self, params: Tensors, h: Tensor) -> Tensor:
        """Logits from the last convolution's output."""
        return self.readout(params, h.relu())

    def readout(self, params: Tensors, h: Tensor) -> Tensor:
        """Logits from the last convolution's output after its ReLU."""
        return few_outputs(h, part(params, READOUT))


def active(h: Tensor, structure: Structure, dropout: Drop | None) -> Tensor:
    """ReLU and dropout of what the nodes that receive messages in ``structure`` have."""
    return h.relu() if dropout is None else dropout(h.relu(), structure)


def part(params: Tensors, prefix: str) -> Tensors:
    """The parameters whose names start with ``prefix``, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in params.items() if name.startswith(prefix)}


def under(prefix: str, parameters: dict[str, Parameter]) -> dict[str, Parameter]:
    """The opposite of :func:`part`: the same parameters with ``prefix`` before their names."""
    return {prefix + name: parameter for name, parameter in parameters.items()}
