"""Block-diagonal products against plain dense ones."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgkd.clients.blocks import BlockMatrix, block_diagonal, csr_tensor

ROWS, COLUMNS = 4, 3


def blocks() -> list[NDArray[np.float32]]:
    """Two clients, the second smaller than the padding, with an empty row."""
    return [
        np.array([[1, 0, 2], [0, 0, 0], [0, 3, 0], [4, 0, 0]], np.float32),
        np.array([[0, 5], [0, 0]], np.float32),
    ]


def padded() -> Tensor:
    dense = torch.zeros(2, ROWS, COLUMNS)
    for row, block in zip(dense, blocks(), strict=True):
        row[: block.shape[0], : block.shape[1]] = torch.from_numpy(block)
    return dense


def matrix() -> BlockMatrix:
    return BlockMatrix([sp.csr_array(block) for block in blocks()], ROWS, COLUMNS, "cpu")


def test_block_diagonal_puts_each_block_at_its_place() -> None:
    expected = np.zeros((8, 6), np.float32)
    expected[:4, :3] = blocks()[0]
    expected[4:6, 3:5] = blocks()[1]
    np.testing.assert_array_equal(
        block_diagonal([sp.csr_array(b) for b in blocks()], ROWS, COLUMNS).toarray(), expected
    )


def test_csr_tensor_has_short_indices_in_order() -> None:
    unsorted = sp.csr_array((np.array([1.0, 2.0]), np.array([2, 0]), np.array([0, 2])), shape=(1, 3))
    tensor = csr_tensor(unsorted)
    assert tensor.crow_indices().dtype == tensor.col_indices().dtype == torch.int32
    assert tensor.to_dense().tolist() == [[2.0, 0.0, 1.0]]


def test_forward_equals_dense() -> None:
    right = torch.randn(2, COLUMNS, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(matrix() @ right, padded() @ right)


def test_backward_equals_dense() -> None:
    generator = torch.Generator().manual_seed(1)
    right = torch.randn(2, COLUMNS, 5, generator=generator)
    upstream = torch.randn(2, ROWS, 5, generator=generator)
    ours, theirs = right.clone().requires_grad_(), right.clone().requires_grad_()
    (matrix() @ ours).backward(upstream)
    (padded() @ theirs).backward(upstream)
    assert ours.grad is not None
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_other_clients_do_not_touch_a_clients_gradient() -> None:
    right = torch.ones(2, COLUMNS, 1, requires_grad=True)
    (matrix() @ right)[0].sum().backward()
    assert right.grad is not None
    assert right.grad[0].flatten().tolist() == [5.0, 3.0, 2.0]
    assert not right.grad[1].any()


def test_a_client_without_entries() -> None:
    empty = BlockMatrix([sp.csr_array((2, 2), dtype=np.float32)], 2, 2, "cpu")
    assert (empty @ torch.ones(1, 2, 3)).tolist() == [[[0.0] * 3] * 2]
