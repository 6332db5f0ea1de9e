"""Local training of a graph convolutional network without autograd, touching no more of the weights than it must.

It gives what the general loop of :mod:`fedgkd.training.local` gives, and is several times as fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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

    With sparse features the epochs work on those rows of the first weight matrix whose columns a client has, gathered
    side by side, and the moments of that matrix have these rows first, in the order of
    :class:`~fedgkd.clients.graphs.SeenColumns`. The other rows have no data gradient, but weight decay and the proximal
    term move them. For that they need nothing but themselves, so all epochs' steps are made at once, client by client,
    while the rows are in the processor's cache.

    Args:
        pull: :math:`\lambda` of the proximal term, for the parameters that have one.

    Returns:
        The cross-entropy per client in the last epoch, before its step, and the scores of the weights received.
    """
    graph, state = clients.graph, clients.state
    optimiser = Adam(settings.lr, settings.weight_decay)
    with clients.timed("training"):
        columns = graph.columns if graph.sparse else None
        trained, anchors = _start(params, received, columns, pull)
        dropout = Dropout(clients, settings.dropout)
        step = GCNStep(network, graph, graph.features if columns is None else columns.features)
        first = step.first(trained)
    scores = evaluate(clients, network, trained, first)
    with clients.timed("training"):
        pieces = list(_pieces(trained, state, columns))
        weights = [trained[name][rows] for name, rows, _ in pieces]
        moments = Moments(
            [state[f"adam.first.{name}"][rows][:, part] for name, rows, part in pieces],
            [state[f"adam.second.{name}"][rows][:, part] for name, rows, part in pieces],
            [state["adam.steps"][rows].amax().clone() for _, rows, _ in pieces],
        )
        for epoch in range(settings.local_epochs):
            losses, grads = step(trained, dropout, step.first(trained) if epoch else first)
            for name, strength in pull.items():
                grads[name].add_(trained[name] - anchors[name], alpha=2 * strength)
            optimiser.update(weights, [grads[name][rows] for name, rows, _ in pieces], moments)
        if columns is not None:
            columns.scatter(trained[FIRST], params[FIRST])
            strength = pull.get(FIRST, 0.0)
            _step_unseen(received[FIRST], params[FIRST], columns, state, optimiser, settings.local_epochs, strength)
        state["adam.steps"] += settings.local_epochs
    return losses, scores


def _start(
    params: Tensors, received: Tensors, columns: SeenColumns | None, pull: Mapping[str, float]
) -> tuple[Tensors, Tensors]:
    """What is trained, and what the proximal term pulls it to."""
    for name, tensor in params.items():
        if columns is None or name != FIRST:
            tensor.copy_(received[name])
    if columns is None:
        return params, received
    rows = columns.gather(received[FIRST])
    return params | {FIRST: rows}, received | ({FIRST: rows.clone()} if FIRST in pull else {})


def _pieces(trained: Tensors, state: Tensors, columns: SeenColumns | None) -> Iterator[tuple[str, slice, slice]]:
    """Name, clients and rows of what Adam steps one by one, each contiguous in memory."""
    together = rows_in_step(state["adam.steps"])
    for name in trained:
        if name == FIRST and columns is not None:
            for client in range(len(columns.order)):
                yield name, slice(client, client + 1), slice(columns.seen)
        else:
            for rows in together:
                yield name, rows, slice(None)


def _step_unseen(
    received: Tensor,
    params: Tensor,
    columns: SeenColumns,
    state: Tensors,
    optimiser: Adam,
    epochs: int,
    strength: float,
) -> None:
    """All epochs' steps of the rows whose columns a client has not."""
    first, second = state[f"adam.first.{FIRST}"], state[f"adam.second.{FIRST}"]
    for client, unseen in enumerate(columns.order[:, columns.seen :]):
        start = received[client].index_select(0, unseen)
        weights, gradient = start.clone(), torch.zeros_like(start)
        rows = slice(columns.seen, None)
        moments = Moments([first[client, rows]], [second[client, rows]], [state["adam.steps"][client].clone()])
        for _ in range(epochs):
            if strength:
                torch.sub(weights, start, out=gradient).mul_(2 * strength)
            optimiser.update([weights], [gradient], moments)
        params[client].index_copy_(0, unseen, weights)
