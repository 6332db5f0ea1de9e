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


def centred(features: Tensor) -> Tensor:
    """Cosine of what is left of the task features without their mean over clients: what sets each client apart.

    A client that equals the mean relates to nobody. Two clients alone are always opposites.
    """
    # In float64 the mean of equal float32 values is exact: equal clients leave nothing, not even rounding.
    features = features.double()
    return cosine(features - features.mean(dim=0))


def both(features: Tensor) -> Tensor:
    """Three quarters :func:`cosine`, one quarter :func:`correlation`.

    Of predicted class distributions the cosine sees which classes a client expects, whatever it is shown; the
    correlation sees what it takes for which class, and not how often. Clients may differ in either.
    """
    return 0.75 * cosine(features) + 0.25 * correlation(features)


def weighted_cosine(prototypes: Tensor, counts: Tensor) -> Tensor:
    r"""Cosine of class prototypes, each class weighted by how sure both clients are of it.

    .. math:: r_{ij} = \frac{\sum_c w_c \langle M_{ic}, M_{jc} \rangle}
        {\sqrt{\sum_c w_c \|M_{ic}\|^2 \cdot \sum_c w_c \|M_{jc}\|^2}},
        \quad w_c = \frac{n_{ic} n_{jc}}{n_{ic} + n_{jc}}

    Clients without a class in common have a relation of 0.

    Args:
        prototypes: ``(clients, classes, numbers)``.
        counts: Training nodes behind each prototype, ``(clients, classes)``; 0 for a class that is not told.

    Returns:
        A symmetric float64 matrix ``(clients, clients)`` with ones on the diagonal.
    """
    prototypes, counts = prototypes.double(), counts.double()
    squares = prototypes.square().sum(dim=2)
    inner, ours = (torch.zeros(len(counts), len(counts), dtype=torch.float64, device=counts.device) for _ in range(2))
    for c in range(counts.shape[1]):
        n = counts[:, c]
        weight = n[:, None] * n[None, :] / (n[:, None] + n[None, :]).clamp(min=1.0)
        inner += weight * (prototypes[:, c] @ prototypes[:, c].T)
        ours += weight * squares[:, c, None]
    norm = (ours * ours.T).sqrt()
    relation = torch.where(norm > 0, inner / norm.clamp(min=torch.finfo(norm.dtype).tiny), 0.0)
    return _unit_diagonal((relation + relation.T) / 2)


RELATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "correlation": correlation,
    "cosine": cosine,
    "centred": centred,
    "both": both,
}


def _gram(features: Tensor) -> Tensor:
    flat = features.flatten(1)
    gram = (flat @ flat.T).double()
    return (gram + gram.T) / 2


def _unit_diagonal(matrix: Tensor) -> Tensor:
    return matrix.fill_diagonal_(1.0).clamp_(-1.0, 1.0)
