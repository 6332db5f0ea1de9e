"""How alike the tasks of two clients are, from the task features that they upload."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def correlation(features: Tensor) -> Tensor:
    r"""Mean over columns of Pearson's correlation: the paper's :math:`r_{ij}`.

    With every column centred and scaled to unit norm and the result flattened to :math:`z_i`, the mean over
    :math:`K` columns is :math:`\langle z_i, z_j \rangle / K`: one Gram matrix. A constant column has no correlation
    and counts as 0.

    Args:
        features: ``(clients, rows, columns)``.

    Returns:
        A symmetric float64 matrix ``(clients, clients)`` with ones on the diagonal.
    """
    centred = features - features.mean(dim=1, keepdim=True)
    norm = centred.square().sum(dim=1, keepdim=True).sqrt()
    # Rounding leaves a constant column with a norm of a few ulps of its values, not with zero.
    noise = features.abs().amax(dim=1, keepdim=True) * features.shape[1] * torch.finfo(features.dtype).eps
    scaled = torch.where(norm > noise, centred / norm.clamp(min=torch.finfo(norm.dtype).tiny), 0.0)
    return _unit_diagonal(_gram(scaled) / features.shape[2])


def cosine(features: Tensor) -> Tensor:
    """Cosine of the flattened task features, with ones on the diagonal; a zero feature relates to nobody."""
    flat = features.flatten(1)
    return _unit_diagonal(_gram(flat / flat.norm(dim=1, keepdim=True).clamp(min=torch.finfo(flat.dtype).tiny)))


RELATIONS: dict[str, Callable[[Tensor], Tensor]] = {"correlation": correlation, "cosine": cosine}


def _gram(features: Tensor) -> Tensor:
    flat = features.flatten(1)
    gram = (flat @ flat.T).double()
    return (gram + gram.T) / 2


def _unit_diagonal(matrix: Tensor) -> Tensor:
    return matrix.fill_diagonal_(1.0).clamp_(-1.0, 1.0)
