"""Local training of a graph convolutional network without autograd, touching no more of the weights than it must.

With the same dropout masks it gives what the general loop of :mod:`fedgkd.training.local` gives, several times as
fast. At the last layer it draws masks for the training nodes only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from fedgkd.clients import ClientBatch, Tensors, all_finite
from fedgkd.clients.graphs import SeenColumns
from fedgkd.models import Dropout, MaskedNetwork, Network
from fedgkd.models.gcn import FIRST, GCNStep, MaskedGCNStep
from fedgkd.models.masked import MASK
from fedgkd.training.evaluation import evaluate
from fedgkd.training.optimiser import Adam, Moments
from fedgkd.training.settings import TrainingSettings

WIDE = (FIRST, MASK + FIRST)
"""The parameters with a row for every column of the features."""


class Trained(NamedTuple):
    """What training by hand tells.

    Args:
        losses: The cross-entropy per client in the last epoch, before its step; NaN if its weights are not finite.
        received: The scores of the weights received.
        first: The output of the first convolution with the trained weights; None if the model has masks, whose first
            convolution in use is another one.
    """

    losses: Tensor
    received: Tensors
    first: Tensor | None


@torch.no_grad()
def train_by_hand(
    clients: ClientBatch,
    params: Tensors,
    received: Tensors,
    model: Network | MaskedNetwork,
    settings: TrainingSettings,
    pull: Mapping[str, float],
    l1: Mapping[str, float],
) -> Trained:
    r"""Train ``params`` in place, starting from ``received``.

    With sparse features, only those rows of the first weight matrix have a data gradient whose columns a client has,
    and so with its mask. They are sorted to the front, and the epochs work on them; the moments are always in that
    order. The other rows are moved by weight decay, the proximal term and the L1 norm, for which they need nothing but
    themselves: all epochs' steps are made at once, client by client, while the rows are in the processor's cache.

    Args:
        pull: :math:`\lambda` for the parameters that have a proximal term.
        l1: The weight of the L1 norm for those that have one.
    """
    graph, state, epochs = clients.graph, clients.state, settings.local_epochs
    optimiser, strength = Adam(settings.lr, settings.weight_decay), 2 * pull.get(FIRST, 0.0)
    masked = isinstance(model, MaskedNetwork)
    with clients.timed("training"):
        columns = graph.columns if graph.sparse else None
        _start(params, received, columns, state, settings, pull, l1)
        now = {
            name: tensor[:, : columns.most] if columns and name in WIDE else tensor for name, tensor in params.items()
        }
        anchor = {name: now[name].clone() for name in pull}
        pieces = _Pieces(params, state, columns)
        dropout = Dropout(clients, settings.dropout)
        step = (MaskedGCNStep if masked else GCNStep)(model, graph, columns.features if columns else graph.features)
        first = step.first(params)
    scores = evaluate(clients, model, received) if masked else evaluate(clients, model, params, first)
    with clients.timed("training"):
        for epoch in range(epochs):
            pulled = pull.keys() if epoch else set()  # at the start nothing is away from where it started
            away = now[FIRST] - anchor[FIRST] if FIRST in pulled else None
            losses, grads = step(params, dropout, step.first(params) if epoch else first, away, strength)
            for name in pulled - {FIRST}:
                grads[name].add_(now[name] - anchor[name], alpha=2 * pull[name])
            for name, weight in l1.items():
                grads[name].add_(now[name].sign(), alpha=weight)
            optimiser.update(pieces.weights, pieces.of(grads), pieces.moments)
        # Only what was trained: the other rows cannot have become anything else.
        losses = losses.masked_fill(~all_finite(now), torch.nan)
        state["adam.steps"] += epochs
    with clients.timed("evaluation"):
        after = None if masked else step.first(params)
    with clients.timed("training"):
        if columns is not None:
            for name in params.keys() & WIDE:
                columns.unsort(params[name])
    return Trained(losses, scores, after)


def _start(
    params: Tensors,
    received: Tensors,
    columns: SeenColumns | None,
    state: Tensors,
    settings: TrainingSettings,
    pull: Mapping[str, float],
    l1: Mapping[str, float],
) -> None:
    """Take over the weights received. Rows of seen columns come first, and those of the others make all their steps.

    Without weight decay or an L1 norm they stay where they are: there the proximal term is at rest.
    """
    decays = settings.decay_unseen and settings.weight_decay > 0
    for name, tensor in params.items():
        if columns is None or name not in WIDE:
            tensor.copy_(received[name])
            continue
        for client, weights in enumerate(tensor):
            columns.sort(client, received[name][client], weights)
            if decays or name in l1:
                rows = (client, slice(columns.counts[client], None))
                moments = Moments(
                    [state[f"adam.first.{name}"][rows]],
                    [state[f"adam.second.{name}"][rows]],
                    [state["adam.steps"][client].clone()],
                )
                _step_unseen(tensor[rows], moments, settings, 2 * pull.get(name, 0.0), l1.get(name, 0.0))


def _step_unseen(
    weights: Tensor, moments: Moments, settings: TrainingSettings, strength: float, sparsity: float
) -> None:
    """All epochs' steps of rows without a data gradient.

    For those the proximal term is a stronger weight decay, which the optimiser has, and a constant.
    """
    decay = settings.weight_decay if settings.decay_unseen else 0.0
    optimiser = Adam(settings.lr, decay + strength)
    constant = weights * -strength
    for _ in range(settings.local_epochs):
        grad = constant.add(weights.sign(), alpha=sparsity) if sparsity else constant
        optimiser.update([weights], [grad], moments)


class _Pieces:
    """The parameters that the epochs train, cut into pieces that are contiguous in memory, as Adam wants them."""

    def __init__(self, params: Tensors, state: Tensors, columns: SeenColumns | None) -> None:
        steps = state["adam.steps"].tolist()
        each = [slice(client, client + 1) for client in range(len(steps))]
        together = [slice(None)] if len(set(steps)) == 1 else each
        self._places: list[tuple[str, slice, slice]] = []
        for name in params:
            if columns is None or name not in WIDE:
                self._places += [(name, clients, slice(None)) for clients in together]
            else:
                self._places += [(name, *rows) for rows in zip(each, map(slice, columns.counts), strict=True)]
        self.weights = self.of(params)
        self.moments = Moments(
            self.of(state, "adam.first."),
            self.of(state, "adam.second."),
            [state["adam.steps"].new_tensor(steps[clients][0]) for _, clients, _ in self._places],
        )

    def of(self, tensors: Tensors, prefix: str = "") -> list[Tensor]:
        return [tensors[prefix + name][clients, rows] for name, clients, rows in self._places]
