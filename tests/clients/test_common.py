"""One graph seen by all clients: the same as a copy of it at each of them."""

from __future__ import annotations

import pytest
import torch

from fedgkd.clients import GraphBatch, SmallGraphs
from fedgkd.clients.common import CommonFeatures, CommonStructure
from fedgkd.models import Network
from tests.graphs import random_graph


@pytest.mark.parametrize("clients", [1, 3])
@pytest.mark.parametrize("backbone", ["gcn", "sage", "gat", "gin"])
def test_equals_a_copy_of_the_graph_at_every_client(backbone: str, clients: int) -> None:
    graph = random_graph(11, 6, seed=4)
    network = Network(backbone, 6, 8, 2, 3)
    draw = torch.Generator().manual_seed(1)
    params = {n: torch.randn(clients, *p.shape, generator=draw) for n, p in network.parameters.items()}
    common = SmallGraphs(CommonFeatures(torch.from_numpy(graph.x)), CommonStructure(graph.adjacency(), "cpu"))
    copies = GraphBatch([graph] * clients)
    torch.testing.assert_close(network.embed(params, common), network.embed(params, copies))
