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
from fedgkd.models import Dropout, MaskedNetwork, Network
from fedgkd.models.gcn import FIRST, GCNStep, MaskedGCNStep
from fedgkd.models.masked import MASK
from fedgkd.training.evaluation import evaluate
from fedgkd.training.optimiser import Adam, Moments, rows_in_step
from fedgkd.training.settings import TrainingSettings

WIDE = (FIRST, MASK + FIRST)
"""The parameters with a row for every column of the features."""


@torch.no_grad()
def train_by_hand(
    clients: ClientBatch,
    params: Tensors,
    received: Tensors,
    model: Network | MaskedNetwork,
    settings: TrainingSettings,
    pull: Mapping[str, float],
    l1: Mapping[str, float],
) -> tuple[Tensor, Tensors]:
    r"""Train ``params`` in place, starting from ``received``.

    With sparse features, only those rows of the first weight matrix have a data gradient whose columns a client has,
    and so with its mask. They are sorted to the front, and the epochs work on them; the moments are always in that
    order. The other rows are moved by weight decay, the proximal term and the L1 norm, for which they need nothing but
    themselves: all epochs' steps are made at once, client by client, while the rows are in the processor's cache.

    Args:
        pull: :math:`\lambda` for the parameters that have a proximal term.
        l1: The weight of the L1 norm for those that have one.

    Returns:
        The cross-entropy per client in the last epoch, before its step, and the scores of the weights received.
    """
    graph, state, epochs = clients.graph, clients.state, settings.local_epochs
    optimiser, strength = Adam(settings.lr, settings.weight_decay), 2 * pull.get(FIRST, 0.0)
    masked = isinstance(model, MaskedNetwork)
    with clients.timed("training"):
        columns = graph.columns if graph.sparse else None
        _start(params, received, columns, state, optimiser, epochs, pull, l1)
        now = {name: _trained(name, tensor, columns) for name, tensor in params.items()}
        anchor = {name: now[name].clone() for name in pull}
        pieces = _Pieces(params, state, columns)
        dropout = Dropout(clients, settings.dropout)
        features = graph.features if columns is None else columns.features
        step = (MaskedGCNStep if masked else GCNStep)(model, graph, features)
        first = step.first(params)
    # Masks in use are pruned: their first convolution is another one.
    scores = evaluate(clients, model, received) if masked else evaluate(clients, model, params, first)
    with clients.timed("training"):
        for epoch in range(epochs):
            away = now[FIRST] - anchor[FIRST] if FIRST in pull else None
            losses, grads = step(params, dropout, step.first(params) if epoch else first, away, strength)
            for name in pull.keys() - {FIRST}:
                grads[name].add_(now[name] - anchor[name], alpha=2 * pull[name])
            for name, weight in l1.items():
                grads[name].add_(now[name].sign(), alpha=weight)
            optimiser.update(pieces.weights, pieces.of(grads), pieces.moments)
        if columns is not None:
            for name in params.keys() & WIDE:
                for client, weights in enumerate(params[name]):
                    columns.unsort(client, weights)
        state["adam.steps"] += epochs
    return losses, scores


def _start(
    params: Tensors,
    received: Tensors,
    columns: SeenColumns | None,
    state: Tensors,
    optimiser: Adam,
    epochs: int,
    pull: Mapping[str, float],
    l1: Mapping[str, float],
) -> None:
    r"""Take over the weights received. Rows of seen columns come first, and those of the others make all their steps.

    For those the proximal term is a stronger weight decay, which the optimiser has, and a constant.
    """
    for name, tensor in params.items():
        if columns is None or name not in WIDE:
            tensor.copy_(received[name])
            continue
        strength, sparsity = 2 * pull.get(name, 0.0), l1.get(name, 0.0)
        decaying = replace(optimiser, weight_decay=optimiser.weight_decay + strength)
        for client, weight in enumerate(tensor):
            columns.sort(client, received[name][client], weight)
            rows = (client, slice(columns.seen, None))
            unseen = tensor[rows]
            moments = Moments(
                [state[f"adam.first.{name}"][rows]],
                [state[f"adam.second.{name}"][rows]],
                [state["adam.steps"][client].clone()],
            )
            constant = unseen * -strength
            for _ in range(epochs):
                grad = constant.add(unseen.sign(), alpha=sparsity) if sparsity else constant
                decaying.update([unseen], [grad], moments)


def _trained(name: str, tensor: Tensor, columns: SeenColumns | None) -> Tensor:
    """The rows of a parameter that the epochs train."""
    return tensor[:, : columns.seen] if columns and name in WIDE else tensor


class _Pieces:
    """The parameters that the epochs train, cut into pieces that are contiguous in memory, as Adam wants them."""

    def __init__(self, params: Tensors, state: Tensors, columns: SeenColumns | None) -> None:
        steps = state["adam.steps"]
        together, each = rows_in_step(steps), [slice(k, k + 1) for k in range(len(steps))]
        self._places = [(name, rows) for name in params for rows in (each if columns and name in WIDE else together)]

        def cut(tensors: Tensors, prefix: str = "") -> list[Tensor]:
            return [_trained(name, tensors[prefix + name][rows], columns) for name, rows in self._places]

        self.weights = cut(params)
        self.moments = Moments(
            cut(state, "adam.first."),
            cut(state, "adam.second."),
            [steps[rows].amax().clone() for _, rows in self._places],
        )

    def of(self, grads: Tensors) -> list[Tensor]:
        return [grads[name][rows] for name, rows in self._places]
