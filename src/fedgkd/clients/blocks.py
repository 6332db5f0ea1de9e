"""Block-diagonal sparse matrices: one block per client, so that one kernel serves all of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor


def csr_tensor(matrix: sp.csr_array, device: torch.device | str = "cpu") -> Tensor:
    """A torch CSR tensor; 32-bit indices, since the CPU kernels convert anything else at every call."""
    matrix.sort_indices()
    return torch.sparse_csr_tensor(
        torch.from_numpy(matrix.indptr.astype(np.int32)),
        torch.from_numpy(matrix.indices.astype(np.int32)),
        torch.from_numpy(matrix.data.astype(np.float32)),
        size=matrix.shape,
        check_invariants=True,
    ).to(device)


# PyTorch says once that sparse CSR tensors are new. Here, not in a thread: the filter is the whole process's.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    csr_tensor(sp.csr_array(np.zeros((1, 1), np.float32)))


def block_diagonal(blocks: Sequence[sp.csr_array], rows: int, columns: int) -> sp.csr_array:
    """Every block padded to ``rows × columns`` and set on the diagonal, without going through COO."""
    entries = np.cumsum([0, *(block.nnz for block in blocks)])
    indptr = [
        start + np.pad(block.indptr, (0, rows - block.shape[0]), mode="edge")[1:].astype(np.int64)
        for start, block in zip(entries[:-1], blocks, strict=True)
    ]
    indices = [i * columns + block.indices.astype(np.int64) for i, block in enumerate(blocks)]
    data = np.concatenate([block.data for block in blocks])
    shape = (rows * len(blocks), columns * len(blocks))
    return sp.csr_array((data, np.concatenate(indices), np.concatenate([[0], *indptr])), shape=shape)


class BlockMatrix:
    """A constant block-diagonal matrix that multiplies ``(clients, columns, k)`` to ``(clients, rows, k)``."""

    def __init__(self, blocks: Sequence[sp.csr_array], rows: int, columns: int, device: torch.device | str) -> None:
        self._blocks = blocks
        self._device = device
        self._rows, self._columns, self._clients = rows, columns, len(blocks)

    @cached_property
    def _forward(self) -> Tensor:
        return csr_tensor(block_diagonal(self._blocks, self._rows, self._columns), self._device)

    @cached_property
    def _backward(self) -> Tensor:
        transposed = [sp.csr_array(block.T) for block in self._blocks]
        return csr_tensor(block_diagonal(transposed, self._columns, self._rows), self._device)

    def __matmul__(self, dense: Tensor) -> Tensor:
        if not dense.requires_grad:
            return self.multiply(dense)
        product: Tensor = _BlockProduct.apply(dense, self)  # type: ignore[no-untyped-call]
        return product

    def multiply(self, dense: Tensor) -> Tensor:
        flat = dense.reshape(self._clients * self._columns, dense.shape[-1])
        return _product(self._forward, flat).view(self._clients, self._rows, dense.shape[-1])

    def multiply_transposed(self, dense: Tensor, onto: Tensor | None = None, share: float = 0.0) -> Tensor:
        """The product with the transpose; added to ``share`` of ``onto``, in its memory, if that is given."""
        flat = dense.reshape(self._clients * self._rows, dense.shape[-1])
        if onto is None:
            return _product(self._backward, flat).view(self._clients, self._columns, dense.shape[-1])
        onto.view(-1, dense.shape[-1]).addmm_(self._backward, flat, beta=share)
        return onto


def _product(sparse: Tensor, dense: Tensor) -> Tensor:
    """``sparse @ dense`` straight into fresh memory; ``torch.mm`` fills it with zeros and copies them first."""
    return dense.new_empty(len(sparse), dense.shape[1]).addmm_(sparse, dense, beta=0)


class _BlockProduct(torch.autograd.Function):
    """The matrix is constant: only the dense side gets a gradient, by the stored transpose."""

    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: BlockMatrix) -> Tensor:
        ctx.matrix = matrix
        return matrix.multiply(dense)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        matrix: BlockMatrix = ctx.matrix
        return matrix.multiply_transposed(grad), None
