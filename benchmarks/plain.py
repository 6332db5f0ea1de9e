"""The plain way: one PyTorch Geometric model and one ``torch.optim.Adam`` per client, in a Python loop.

Written as such code usually is (FED-PUB, OpenFGL): dense features, ``edge_index``, autograd, one client after the
other. The maths is that of :mod:`fedgkd`: the same layers, dropout rate, weight decay, proximal term and cross-entropy
over the training nodes; :func:`benchmarks.agreement.disagreement` checks that the weights come out the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout
from torch_geometric.nn import GCNConv

from fedgkd.clients import Tensors
from fedgkd.data.federation import Federation
from fedgkd.data.graph import Graph

State = dict[str, Tensor]


class PlainGCN(nn.Module):
    """Two graph convolutions and a linear readout, as ``fedgkd``'s default network."""

    def __init__(self, features: int, hidden: int, classes: int, rate: float, cached: bool) -> None:
        super().__init__()
        self.conv1 = GCNConv(features, hidden, cached=cached)
        self.conv2 = GCNConv(hidden, hidden, cached=cached)
        self.readout = nn.Linear(hidden, classes)
        self.rate = rate

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = dropout(self.conv1(x, edge_index).relu(), self.rate, self.training)
        h = dropout(self.conv2(h, edge_index).relu(), self.rate, self.training)
        logits: Tensor = self.readout(h)
        return logits


class PlainClient:
    """A client's graph, model and optimiser."""

    def __init__(self, graph: Graph, settings: Any, hidden: int, cached: bool) -> None:
        assert graph.masks is not None
        self.x = torch.from_numpy(graph.x.toarray() if isinstance(graph.x, sp.csr_array) else graph.x)
        self.edge_index = torch.from_numpy(graph.edge_index)
        self.y = torch.from_numpy(graph.y)
        self.masks = [torch.from_numpy(np.asarray(mask)) for mask in graph.masks]
        self.model = PlainGCN(graph.num_features, hidden, graph.num_classes, settings.dropout, cached)
        self.optimiser = torch.optim.Adam(self.model.parameters(), settings.lr, weight_decay=settings.weight_decay)
        self.proximal: float = getattr(settings, "proximal", 0.0)

    def train(self, received: State, epochs: int) -> None:
        self.model.load_state_dict(received)
        self.model.train()
        train = self.masks[0]
        for _ in range(epochs):
            self.optimiser.zero_grad()
            loss = cross_entropy(self.model(self.x, self.edge_index)[train], self.y[train])
            if self.proximal:
                distances = [((w - received[name]) ** 2).sum() for name, w in self.model.named_parameters()]
                loss = loss + self.proximal * torch.stack(distances).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimiser.step()

    @torch.no_grad()
    def evaluate(self) -> list[float]:
        """Accuracy on each split."""
        self.model.eval()
        right = self.model(self.x, self.edge_index).argmax(dim=-1) == self.y
        return [right[mask].float().mean().item() for mask in self.masks]

    def weights(self) -> State:
        return {name: tensor.clone() for name, tensor in self.model.state_dict().items()}


class PlainFederation:
    """All clients, one after the other."""

    def __init__(self, federation: Federation, settings: Any, start: Tensors, hidden: int, cached: bool) -> None:
        self.clients = [PlainClient(graph, settings, hidden, cached) for graph in federation.graphs]
        self.received = [to_plain(start, row) for row in range(len(self.clients))]

    def train(self, epochs: int) -> None:
        for client, received in zip(self.clients, self.received, strict=True):
            client.train(received, epochs)

    def weights(self) -> Tensors:
        """Everybody's weights, under the names and in the layout of ``fedgkd``."""
        return from_plain([client.model.state_dict() for client in self.clients])


_NAMES = {
    "convs.0.weight": "conv1.lin.weight",
    "convs.0.bias": "conv1.bias",
    "convs.1.weight": "conv2.lin.weight",
    "convs.1.bias": "conv2.bias",
    "readout.weight": "readout.weight",
    "readout.bias": "readout.bias",
}


def to_plain(params: Tensors, row: int) -> State:
    """One client's weights in PyTorch Geometric's names and layout: ours stand inputs first, biases as a row."""
    return {
        plain: params[ours][row].flatten().clone() if ours.endswith("bias") else params[ours][row].t().contiguous()
        for ours, plain in _NAMES.items()
    }


def from_plain(states: Sequence[State]) -> Tensors:
    """The opposite, for all clients."""
    return {
        ours: torch.stack([s[plain].unsqueeze(0) if ours.endswith("bias") else s[plain].t() for s in states])
        for ours, plain in _NAMES.items()
    }
