"""Every batched layer equals PyTorch Geometric's with that client's weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

from fedgkd.clients import DenseFeatures, DenseStructure, GraphBatch, Tensors
from fedgkd.data.graph import Graph
from fedgkd.models.layers import GAT, GCN, GIN, SAGE, Layer
from tests.graphs import random_graph

IN, OUT = 6, 8


def _graphs(sparse: bool) -> list[Graph]:
    with_isolated = random_graph(9, IN, seed=3, sparse=sparse)
    keep = (with_isolated.edge_index != 0).all(axis=0)
    isolated = Graph(with_isolated.x, with_isolated.edge_index[:, keep], with_isolated.y, 3, *with_isolated.masks)
    return [random_graph(12, IN, seed=1, sparse=sparse), random_graph(7, IN, seed=2, sparse=sparse), isolated]


def _params(layer: Layer, clients: int) -> Tensors:
    draw = torch.Generator().manual_seed(0)
    shapes = layer.parameters(IN, OUT)
    return {name: torch.randn(clients, *p.shape, generator=draw) * 0.3 for name, p in shapes.items()}


def _gcn(p: Tensors) -> Any:
    conv = GCNConv(IN, OUT)
    conv.lin.weight.data, conv.bias.data = p["weight"].T, p["bias"][0]
    return conv


def _sage(p: Tensors) -> Any:
    conv = SAGEConv(IN, OUT)
    conv.lin_l.weight.data, conv.lin_l.bias.data = p["weight_neighbour"].T, p["bias"][0]
    conv.lin_r.weight.data = p["weight_self"].T
    return conv


def _gin(p: Tensors) -> Any:
    first, second = torch.nn.Linear(IN, OUT), torch.nn.Linear(OUT, OUT)
    conv = GINConv(torch.nn.Sequential(first, torch.nn.ReLU(), second))  # draws new weights for its perceptron
    first.weight.data, first.bias.data = p["weight_1"].T, p["bias_1"][0]
    second.weight.data, second.bias.data = p["weight_2"].T, p["bias_2"][0]
    return conv


def _gat(p: Tensors) -> Any:
    conv = GATConv(IN, OUT // GAT.heads, heads=GAT.heads)
    conv.lin.weight.data, conv.bias.data = p["weight"].T, p["bias"][0]
    conv.att_src.data, conv.att_dst.data = p["attention_source"][None], p["attention_target"][None]
    return conv


CASES: dict[str, tuple[Layer, Callable[[Tensors], Any]]] = {
    "gcn": (GCN(), _gcn),
    "sage": (SAGE(), _sage),
    "gin": (GIN(), _gin),
    "gat": (GAT(), _gat),
}


def _apply(conv: Any, graph: Graph) -> Tensor:
    x = torch.from_numpy(graph.x if isinstance(graph.x, np.ndarray) else graph.x.toarray())
    return conv(x, torch.from_numpy(graph.edge_index))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", CASES)
def test_forward_and_gradient_equal_pyg(name: str, sparse: bool) -> None:
    layer, make = CASES[name]
    graphs = _graphs(sparse)
    batch = GraphBatch(graphs)
    params = {key: value.requires_grad_() for key, value in _params(layer, len(graphs)).items()}
    out = layer.apply(batch.features, batch.structure, params)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    for i, graph in enumerate(graphs):
        expected = _apply(make({key: value[i].detach() for key, value in params.items()}), graph)
        torch.testing.assert_close(out[i, : graph.num_nodes], expected, rtol=1e-4, atol=1e-5)
    nodes = [graph.num_nodes for graph in graphs]
    loss = sum((out[i, :n] * weights[i, :n]).sum() for i, n in enumerate(nodes))
    ours = torch.autograd.grad(loss, list(params.values()))
    for i, graph in enumerate(graphs):
        conv = make({key: value[i].detach() for key, value in params.items()})
        (_apply(conv, graph) * weights[i, : nodes[i]]).sum().backward()
        theirs = sorted(float(p.grad.abs().sum()) for p in conv.parameters())
        mine = sorted(float(grad[i].abs().sum()) for grad in ours)
        assert mine == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize("name", CASES)
def test_dense_structure_equals_sparse(name: str) -> None:
    layer, _ = CASES[name]
    graph = random_graph(10, IN, seed=4)
    batch = GraphBatch([graph])
    params = _params(layer, 1)
    dense = DenseStructure(torch.from_numpy(graph.adjacency().toarray())[None])
    expected = layer.apply(batch.features, batch.structure, params)
    found = layer.apply(DenseFeatures(torch.from_numpy(graph.x)[None]), dense, params)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_directed_edges_pass_messages_from_source_to_target() -> None:
    graph = Graph(np.eye(3, dtype=np.float32), np.array([[0, 1], [1, 2]]), np.array([0, 1, 0]), 2)
    batch = GraphBatch([graph])
    h = torch.eye(3)[None]
    torch.testing.assert_close(batch.structure.total(h)[0], torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]))
    conv = GCNConv(3, 3, bias=False)
    conv.lin.weight.data = torch.eye(3)
    expected = conv(h[0], torch.from_numpy(graph.edge_index))
    torch.testing.assert_close(batch.structure.gcn(h)[0], expected)
