r"""The floor: only the kernels of a local epoch that ours cannot leave out, on preallocated tensors.

For every batch of the engine (clients of similar size, padded to one number of nodes) an epoch of the two-layer GCN
needs, with :math:`\hat A_T` the rows of the normalised adjacency that belong to training nodes:

=========  =====================================================  ======================================================
step       where features are sparse                              where they are dense
=========  =====================================================  ======================================================
layer 1    :math:`XW_1`, then :math:`\hat A(\cdot)`               :math:`(\hat AX)W_1`; :math:`\hat AX` is made once
layer 2    :math:`\hat A_T H_1`, then :math:`(\cdot)W_2`          the same
readout    :math:`H_2W_3` at the training nodes                   the same
backward   :math:`H_2^\top G`, :math:`GW_3^\top`,                 the same, but :math:`(\hat AX)^\top G` at the end
           :math:`(\hat A_T H_1)^\top G`, :math:`GW_2^\top`,
           :math:`\hat A_T^\top G`, :math:`\hat A^\top G`,
           :math:`X^\top G`
Adam       one fused pass over the parameters that change         the same
=========  =====================================================  ======================================================

Sparse features have only the columns that a client's nodes use: :math:`W_1` is that short. Which of the two columns
above is faster is tried, and the faster one is the floor. With weight decay also weights of columns that a client does
not have move. They need nothing but themselves, so Adam steps them for all epochs at once, client by client, while they
are in the cache. How many parameters change is counted, not guessed.

Not in the floor: biases, ReLU, dropout and its random numbers, softmax and loss, every copy, fill and allocation,
gathering and scattering of rows, the proximal term, Python and autograd.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.optim.adam import adam

from benchmarks.timing import race, seconds
from fedgkd.clients.blocks import block_diagonal, csr_tensor
from fedgkd.clients.structure import gcn_normalised
from fedgkd.data.graph import Graph

# Features this full are never tried as sparse ones.
_SURELY_DENSE = 0.5


class FirstLayer(ABC):
    """The products of the first layer, forward and backward to its weights."""

    @abstractmethod
    def forward(self) -> None: ...

    @abstractmethod
    def backward(self) -> None: ...

    def both(self) -> None:
        self.forward()
        self.backward()


class SparseFirst(FirstLayer):
    def __init__(self, graphs: Sequence[Graph], adjacency: tuple[Tensor, Tensor], rows: int, hidden: int) -> None:
        self._adjacency, self._adjacency_t = adjacency
        blocks = [_own_columns(graph) for graph in graphs]
        columns = max(block.shape[1] for block in blocks)
        matrix = block_diagonal(blocks, rows, columns)
        self._x, self._x_t = csr_tensor(matrix), csr_tensor(sp.csr_array(matrix.T))
        self._weight = torch.randn(len(graphs) * columns, hidden)
        self._projected, self._z = (torch.randn(len(graphs) * rows, hidden) for _ in range(2))
        self._gradient = torch.empty_like(self._weight)

    def forward(self) -> None:
        torch.mm(self._x, self._weight, out=self._projected)
        torch.mm(self._adjacency, self._projected, out=self._z)

    def backward(self) -> None:
        torch.mm(self._adjacency_t, self._z, out=self._projected)
        torch.mm(self._x_t, self._projected, out=self._gradient)


class DenseFirst(FirstLayer):
    def __init__(self, graphs: Sequence[Graph], adjacency: tuple[Tensor, Tensor], rows: int, hidden: int) -> None:
        features = graphs[0].num_features
        x = torch.zeros(len(graphs), rows, features)
        for row, graph in zip(x, graphs, strict=True):
            row[: graph.num_nodes] = torch.from_numpy(_dense(graph))
        self._x = torch.mm(adjacency[0], x.view(-1, features)).view_as(x)
        self._weight = torch.randn(len(graphs), features, hidden)
        self._z = torch.randn(len(graphs), rows, hidden)
        self._gradient = torch.empty_like(self._weight)

    def forward(self) -> None:
        torch.bmm(self._x, self._weight, out=self._z)

    def backward(self) -> None:
        torch.bmm(self._x.mT, self._z, out=self._gradient)


class FusedAdam:
    """One pass over ``count`` parameters; they lie in one tensor, since how they are cut up costs next to nothing."""

    def __init__(self, count: int, lr: float, weight_decay: float) -> None:
        self._values, self._gradient = torch.randn(count), torch.randn(count) * 1e-3
        self._first, self._second = torch.zeros(count), torch.zeros(count)
        self._steps = torch.zeros(())
        self._lr, self._weight_decay = lr, weight_decay

    def step(self) -> None:
        adam(
            [self._values],
            [self._gradient],
            [self._first],
            [self._second],
            [],
            [self._steps],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self._lr,
            weight_decay=self._weight_decay,
            eps=1e-8,
            maximize=False,
        )


class BatchFloor:
    """One batch of clients, of whose parameters ``changing`` change."""

    def __init__(self, graphs: Sequence[Graph], hidden: int, changing: int, lr: float, weight_decay: float) -> None:
        clients, rows, classes = len(graphs), max(graph.num_nodes for graph in graphs), graphs[0].num_classes
        blocks = [gcn_normalised(graph.adjacency()) for graph in graphs]
        self._first = _faster_first_layer(graphs, _with_transpose(blocks, rows, rows), rows, hidden)
        training = [sp.csr_array(block[_training(graph)]) for block, graph in zip(blocks, graphs, strict=True)]
        trained = max(block.shape[0] for block in training)
        self._messages, self._messages_t = _with_transpose(training, trained, rows)
        self._h1 = torch.randn(clients * rows, hidden)
        self._inputs, self._h2, self._z = (torch.randn(clients, trained, hidden) for _ in range(3))
        # Classes first: products with as few columns as there are classes are slow.
        self._logits = torch.randn(clients, classes, trained)
        self._w2, self._gradient_w2 = torch.randn(clients, hidden, hidden), torch.empty(clients, hidden, hidden)
        self._w3, self._gradient_w3 = torch.randn(clients, classes, hidden), torch.empty(clients, classes, hidden)
        unseen = _unseen_parameters(graphs, hidden, changing)
        self._adam = FusedAdam(changing - sum(unseen), lr, weight_decay)
        self._adam_unseen = [FusedAdam(count, lr, weight_decay) for count in unseen if count]

    def train(self, epochs: int) -> None:
        for _ in range(epochs):
            self._epoch()
        for client in self._adam_unseen:
            for _ in range(epochs):
                client.step()

    def _epoch(self) -> None:
        self._first.forward()
        torch.mm(self._messages, self._h1, out=_flat(self._inputs))
        torch.bmm(self._inputs, self._w2, out=self._z)
        torch.bmm(self._w3, self._h2.mT, out=self._logits)
        torch.bmm(self._logits, self._h2, out=self._gradient_w3)
        torch.bmm(self._logits.mT, self._w3, out=self._z)
        torch.bmm(self._inputs.mT, self._z, out=self._gradient_w2)
        torch.bmm(self._z, self._w2.mT, out=self._inputs)
        torch.mm(self._messages_t, _flat(self._inputs), out=self._h1)
        self._first.backward()
        self._adam.step()


class Floor:
    """All batches of a federation.

    Args:
        batches: The graphs of each batch.
        changing: How many parameters change in each batch.
    """

    def __init__(
        self, batches: Sequence[Sequence[Graph]], changing: Sequence[int], hidden: int, lr: float, weight_decay: float
    ) -> None:
        self._batches = [
            BatchFloor(graphs, hidden, count, lr, weight_decay) for graphs, count in zip(batches, changing, strict=True)
        ]

    def train(self, epochs: int) -> None:
        for batch in self._batches:
            batch.train(epochs)


def _faster_first_layer(
    graphs: Sequence[Graph], adjacency: tuple[Tensor, Tensor], rows: int, hidden: int
) -> FirstLayer:
    dense = DenseFirst(graphs, adjacency, rows, hidden)
    if sum(np.count_nonzero(_values(graph)) for graph in graphs) > _SURELY_DENSE * _cells(graphs):
        return dense
    sparse = SparseFirst(graphs, adjacency, rows, hidden)
    best = race({"dense": partial(seconds, dense.both), "sparse": partial(seconds, sparse.both)}, repeats=5)
    return dense if best["dense"] < best["sparse"] else sparse


def _with_transpose(blocks: Sequence[sp.csr_array], rows: int, columns: int) -> tuple[Tensor, Tensor]:
    matrix = block_diagonal(blocks, rows, columns)
    return csr_tensor(matrix), csr_tensor(sp.csr_array(matrix.T))


def _training(graph: Graph) -> np.ndarray:
    assert graph.train_mask is not None
    return np.flatnonzero(graph.train_mask)


def _unseen_parameters(graphs: Sequence[Graph], hidden: int, changing: int) -> list[int]:
    """First-layer weights of columns that each client does not have; none if they are not among those that change."""
    unseen = [(graph.num_features - _own_columns(graph).shape[1]) * hidden for graph in graphs]
    first, second, readout = graphs[0].num_features + 1, hidden + 1, graphs[0].num_classes
    everything = len(graphs) * ((first + second) * hidden + (hidden + 1) * readout)
    return unseen if changing == everything else [0] * len(graphs)


def _flat(tensor: Tensor) -> Tensor:
    return tensor.view(-1, tensor.shape[-1])


def _own_columns(graph: Graph) -> sp.csr_array:
    """The features without the columns that no node of this graph uses."""
    x = sp.csr_array(graph.x)
    return sp.csr_array(x[:, np.unique(x.indices)])


def _dense(graph: Graph) -> np.ndarray:
    return graph.x.toarray() if isinstance(graph.x, sp.csr_array) else graph.x


def _values(graph: Graph) -> np.ndarray:
    return graph.x.data if isinstance(graph.x, sp.csr_array) else graph.x


def _cells(graphs: Sequence[Graph]) -> int:
    return sum(graph.num_nodes * graph.num_features for graph in graphs)
