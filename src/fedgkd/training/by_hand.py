"""Local training of a graph convolutional network without autograd, touching no more of the weights than it must.

With the same dropout masks it gives what the general loop of :mod:`fedgkd.training.local` gives, several times as
fast. At the last layer it draws masks for the training nodes only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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

    Args:
        pull: :math:`\lambda` for the parameters that have a proximal term.

    Returns:
        The cross-entropy per client in the last epoch, before its step, and the scores of the weights received.
    """
    graph, state, epochs = clients.graph, clients.state, settings.local_epochs
    optimiser, strength = Adam(settings.lr, settings.weight_decay), 2 * pull.get(FIRST, 0.0)
    with clients.timed("training"):
        columns = graph.columns if graph.sparse else None
        decaying = replace(optimiser, weight_decay=optimiser.weight_decay + strength)
        _start(params, received, columns, state, decaying, epochs, strength)
        seen = _seen(params[FIRST], columns)
        anchor = seen.clone() if strength else None
        pieces = _Pieces(params, state, columns)
        dropout = Dropout(clients, settings.dropout)
        step = GCNStep(network, graph, graph.features if columns is None else columns.features)
        first = step.first(params)
    scores = evaluate(clients, network, params, first)
    with clients.timed("training"):
        for epoch in range(epochs):
            away = None if anchor is None else seen - anchor
            losses, grads = step(params, dropout, step.first(params) if epoch else first, away, strength)
            for name in pull.keys() - {FIRST}:
                grads[name].add_(params[name] - received[name], alpha=2 * pull[name])
            optimiser.update(pieces.weights, pieces.of(grads), pieces.moments)
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
    r"""Take over the weights received. Rows of seen columns come first, and those of the others make all their steps.

    For those the proximal term is a stronger weight decay, which the optimiser has, and a constant.
    """
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
            constant = tensor[rows] * -strength
            for _ in range(epochs):
                optimiser.update([tensor[rows]], [constant], moments)


def _seen(weight: Tensor, columns: SeenColumns | None) -> Tensor:
    return weight if columns is None else weight[:, : columns.seen]


class _Pieces:
    """The parameters that the epochs train, cut into pieces that are contiguous in memory, as Adam wants them."""

    def __init__(self, params: Tensors, state: Tensors, columns: SeenColumns | None) -> None:
        steps = state["adam.steps"]
        together, each = rows_in_step(steps), [slice(k, k + 1) for k in range(len(steps))]
        self._places = [(name, rows) for name in params for rows in (each if columns and name == FIRST else together)]

        def cut(tensor: Tensor, name: str, rows: slice) -> Tensor:
            return _seen(tensor[rows], columns) if name == FIRST else tensor[rows]

        self.weights = [cut(params[name], name, rows) for name, rows in self._places]
        self.moments = Moments(
            [cut(state[f"adam.first.{name}"], name, rows) for name, rows in self._places],
            [cut(state[f"adam.second.{name}"], name, rows) for name, rows in self._places],
            [steps[rows].amax().clone() for _, rows in self._places],
        )

    def of(self, grads: Tensors) -> list[Tensor]:
        return [grads[name][rows] for name, rows in self._places]
