"""FED-PUB's way to describe a task without distilling it: what the model makes of a random graph common to all."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedgkd.clients import ClientBatch, SmallGraphs, Tensors
from fedgkd.clients.common import CommonFeatures, CommonStructure
from fedgkd.models import Network
from fedgkd.randomness import stream

BLOCKS, BLOCK_NODES, EDGE_PROBABILITY = 5, 100, 0.1


def proxy_embedding(clients: ClientBatch, network: Network, params: Tensors) -> Tensor:
    """Mean over the common graph's nodes of the last convolution's output, before ReLU: ``(clients, hidden)``."""
    with torch.no_grad():
        return network.embed(params, proxy_graph(clients.seed, network.num_features, clients.device)).mean(dim=1)


@lru_cache(maxsize=2)
def proxy_graph(seed: int, num_features: int, device: torch.device) -> SmallGraphs:
    """The common random graph: every client draws it from the run's seed, so it does not have to be sent."""
    draw = stream(seed, "proxy graph")
    upper = np.triu(draw.random((BLOCKS, BLOCK_NODES, BLOCK_NODES)) < EDGE_PROBABILITY, k=1)
    adjacency = sp.csr_array(sp.block_diag((upper | upper.transpose(0, 2, 1)).astype(np.float32)))
    x = torch.from_numpy(draw.standard_normal((BLOCKS * BLOCK_NODES, num_features), np.float32))
    return SmallGraphs(CommonFeatures(x.to(device)), CommonStructure(adjacency, device))
