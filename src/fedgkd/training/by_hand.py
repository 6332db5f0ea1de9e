"""Local training of a graph convolutional network without autograd, touching no more of the weights than it must.

With the same dropout masks it gives what the general loop of :mod:`fedgkd.training.local` gives, several times as
fast. At the last layer it draws masks for the training nodes only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedgkd.clients import ClientBatch, Tensors
from fedgkd.clients.graphs import SeenColumns
from fedgkd.models import Dropout, Network
from fedgkd.models.gcn import FIRST, GCNStep
from fedgkd.training.evaluation import evaluate
from fedgkd.training.optimiser import Adam, Moments, rows_in_step
from fedgkd.training.settings import TrainingSettings


@torch.no_grad()
def train_by_hand(
    clients: ClientBatch,
    params: Tensors,
    received: Tensors,
    network: Network,
    settings: TrainingSettings,
    pull: Mapping[str, float],
) -> tuple[Tensor, Tensors]:
    r"""Train ``params`` in place, starting from ``received``.

    With sparse features, only those rows of the first weight matrix have a data gradient whose columns a client has.
    They are sorted to the front, and the epochs work on them; the moments of that matrix are always in that order. The
    other rows are moved by weight decay and the proximal term, for which they need nothing but themselves: all epochs'
    steps are made at once, client by client, while the rows are in the processor's cache.

    The gradient :math:`2 \lambda (W - \bar W)` of the proximal term is a stronger weight decay and a constant.

    Args:
        pull: :math:`\lambda` for the parameters that have a proximal term.

    Returns:
        The cross-entropy per client in the last epoch, before its step, and the scores of the weights received.
    """
    graph, state, epochs = clients.graph, clients.state, settings.local_epochs
    with clients.timed("training"):
        columns = graph.columns if graph.sparse else None
        optimisers = {name: Adam(settings.lr, settings.weight_decay + 2 * pull.get(name, 0.0)) for name in params}
        _start(params, received, columns, state, optimisers[FIRST], epochs, pull.get(FIRST, 0.0))
        groups = [
            _Group(optimiser, [name for name in params if optimisers[name] == optimiser], params, state, columns)
            for optimiser in dict.fromkeys(optimisers.values())
        ]
        constants = {name: params[name] * (-2 * strength) for name, strength in pull.items() if name != FIRST}
        first_constant = _seen(params[FIRST], columns) * (-2 * pull[FIRST]) if FIRST in pull else None
        dropout = Dropout(clients, settings.dropout)
        step = GCNStep(network, graph, graph.features if columns is None else columns.features)
        first = step.first(params)
    scores = evaluate(clients, network, params, first)
    with clients.timed("training"):
        for epoch in range(epochs):
            losses, grads = step(params, dropout, step.first(params) if epoch else first, first_constant)
            for name, constant in constants.items():
                grads[name] += constant
            for group in groups:
                group.step(grads)
        if columns is not None:
            for client, weight in enumerate(params[FIRST]):
                columns.unsort(client, weight)
        state["adam.steps"] += epochs
    return losses, scores


def _start(
    params: Tensors,
    received: Tensors,
    columns: SeenColumns | None,
    state: Tensors,
    optimiser: Adam,
    epochs: int,
    strength: float,
) -> None:
    """Take over the weights received. Rows of seen columns come first, and those of the others make all their steps."""
    for name, tensor in params.items():
        if columns is None or name != FIRST:
            tensor.copy_(received[name])
            continue
        for client, weight in enumerate(tensor):
            columns.sort(client, received[name][client], weight)
            rows = (client, slice(columns.seen, None))
            moments = Moments(
                [state[f"adam.first.{FIRST}"][rows]],
                [state[f"adam.second.{FIRST}"][rows]],
                [state["adam.steps"][client].clone()],
            )
            constant = tensor[rows] * (-2 * strength)
            for _ in range(epochs):
                optimiser.update([tensor[rows]], [constant], moments)


def _seen(weight: Tensor, columns: SeenColumns | None) -> Tensor:
    return weight if columns is None else weight[:, : columns.seen]


class _Group:
    """The parameters with the same weight decay, cut into pieces that are contiguous in memory, as Adam wants them."""

    def __init__(
        self,
        optimiser: Adam,
        names: Sequence[str],
        params: Tensors,
        state: Tensors,
        columns: SeenColumns | None,
    ) -> None:
        self._optimiser = optimiser
        together, each = rows_in_step(state["adam.steps"]), [slice(k, k + 1) for k in range(len(state["adam.steps"]))]
        self._pieces = [(name, rows) for name in names for rows in (each if columns and name == FIRST else together)]

        def cut(tensor: Tensor, name: str, rows: slice) -> Tensor:
            return _seen(tensor[rows], columns) if name == FIRST else tensor[rows]

        self._weights = [cut(params[name], name, rows) for name, rows in self._pieces]
        self._moments = Moments(
            [cut(state[f"adam.first.{name}"], name, rows) for name, rows in self._pieces],
            [cut(state[f"adam.second.{name}"], name, rows) for name, rows in self._pieces],
            [state["adam.steps"][rows].amax().clone() for _, rows in self._pieces],
        )

    def step(self, grads: Tensors) -> None:
        self._optimiser.update(self._weights, [grads[name][rows] for name, rows in self._pieces], self._moments)
