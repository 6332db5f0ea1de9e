"""Accuracy and macro-F1 of every client's model on its own splits."""

from __future__ import annotations

import torch
from torch import Tensor

from fedgkd.clients import ClientBatch, GraphBatch, Tensors
from fedgkd.models import Classifier, Network

SPLITS = ("train", "val", "test")
TRAIN, VAL, TEST = range(len(SPLITS))


@torch.no_grad()
def evaluate(clients: ClientBatch, model: Classifier, params: Tensors, first: Tensor | None = None) -> Tensors:
    """``accuracy`` and ``macro_f1``, each ``(clients, splits)``; NaN where a client has no node in a split.

    Args:
        first: The output of a network's first convolution, if it is there already.
    """
    with clients.timed("evaluation"):
        graph = clients.graph
        if first is not None:
            assert isinstance(model, Network)
            logits = model.classify(params, model.embed_from(params, graph, first))
        else:
            logits = model(params, graph)
        # argmax, but not slow where classes come first in memory.
        return scores(confusion(graph, logits.max(dim=-1).indices))


def confusion(graph: GraphBatch, predicted: Tensor) -> Tensor:
    """Counts ``(clients, splits, true class, predicted class)``."""
    (clients, splits), classes = graph.num_scored.shape, graph.num_classes
    cells = graph.cells + predicted.flatten()[graph.scored[2]]
    flat = torch.bincount(cells, minlength=clients * splits * classes**2)
    return flat.view(clients, splits, classes, classes).double()


def scores(counts: Tensor) -> Tensors:
    hits = counts.diagonal(dim1=-2, dim2=-1)
    seen = counts.sum(-1) + counts.sum(-2)
    # Classes that are neither present nor predicted in a split do not count, as in scikit-learn.
    f1 = torch.where(seen > 0, 2 * hits / seen, torch.nan).nanmean(-1)
    return {"accuracy": hits.sum(-1) / counts.sum((-2, -1)), "macro_f1": f1}
