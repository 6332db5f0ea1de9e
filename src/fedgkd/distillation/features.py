"""What is taken from a distilled graph to describe a task."""

from __future__ import annotations

import torch
from torch import Tensor

from fedgkd.clients import DenseFeatures, DenseStructure, SmallGraphs, Tensors
from fedgkd.distillation.synthetic import SyntheticGraph
from fedgkd.models import Network

TASK_FEATURES = ("x_h", "x", "h", "y", "predictions")


def task_feature(kind: str, graph: SyntheticGraph, edges: DenseStructure, network: Network, params: Tensors) -> Tensor:
    """``(clients, rows, columns)``; ``x_h`` is the paper's :math:`M = [X \\,\\Vert\\, H]`."""
    with torch.no_grad():
        if kind == "x":
            return graph.x
        if kind == "y":
            return graph.y
        h = network.embed(params, SmallGraphs(DenseFeatures(graph.x), edges))
        if kind == "h":
            return h
        if kind == "predictions":
            # The mean over a class's nodes: as few numbers as possible, and the noise of single nodes averaged out.
            classes = network.num_classes
            return network.classify(params, h).softmax(dim=-1).view(len(h), classes, -1, classes).mean(dim=2)
        return torch.cat([graph.x, h], dim=-1)
