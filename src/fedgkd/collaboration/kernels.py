"""From pairwise relation to similarity: kernels over the collaboration network, in float64."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgkd.errors import SettingError, quoted

KERNELS = ("exponential", "centred", "local", "square", "uniform", "effective_resistance")

# exp(600) ≈ 1e260 is still finite and its differences are already far beyond what a softmax can tell apart.
_LARGEST_EXPONENT = 600.0
_SHUFFLES = 200


def kernel_matrix(
    relation: Tensor, kernel: str, tau: float = 1.0, identity_term: bool = True, normalise: bool = False
) -> Tensor:
    r"""The similarity :math:`S` that a kernel makes of the relation :math:`R`.

    Args:
        relation: Symmetric, ones on the diagonal.
        kernel: ``centred`` :math:`e^{\tau JRJ}` with ones on the diagonal, where :math:`J` takes away what a client has
            in common with all; ``exponential`` :math:`e^{\tau R}`; ``local`` :math:`R`; ``square`` :math:`R^2`;
            ``uniform`` all equal; ``effective_resistance`` :math:`1 / (1 + \Omega)` in the network with edge weights
            :math:`\max(r_{ij}, 0)`.
        tau: Temperature of the exponential.
        identity_term: Whether the exponential's series starts at κ = 0; off, the result is :math:`e^{\tau R} - I`.
        normalise: Divide :math:`s_{ij}` by :math:`\sqrt{s_{ii} s_{jj}}`, so that the scale does not grow with n.
    """
    relation = relation.double()
    if kernel == "centred":
        similarity = _normalised(_exponential(_centred(relation), tau, identity_term))
    elif kernel == "exponential":
        similarity = _exponential(relation, tau, identity_term)
    elif kernel == "local":
        similarity = relation
    elif kernel == "square":
        similarity = relation @ relation
    elif kernel == "uniform":
        similarity = torch.ones_like(relation)
    elif kernel == "effective_resistance":
        similarity = 1.0 / (1.0 + effective_resistance(relation))
    else:
        raise SettingError(f"kernel must be one of {', '.join(KERNELS)}, not {quoted(kernel)}")
    return _normalised(similarity) if normalise else similarity


def leading_eigenvalue(relation: Tensor) -> float:
    """The largest of the centred relation :math:`JRJ`: how much the strongest difference between clients explains."""
    return float(torch.linalg.eigvalsh(_centred(relation.double()))[-1])


def has_structure(relation: Tensor, draw: np.random.Generator, quantile: float = 0.95) -> bool:
    """Whether the relation groups the clients more than its own values would in random order (Horn's analysis).

    The largest eigenvalue of the centred relation, without its diagonal, is compared with those of relations whose
    pairs are shuffled.
    """
    clients = len(relation)
    values = relation.double().cpu().numpy()
    above = np.triu_indices(clients, k=1)
    pairs = values[above]
    chance = [_largest_centred(draw.permutation(pairs), above, clients) for _ in range(_SHUFFLES)]
    return bool(_largest_centred(pairs, above, clients) > np.quantile(chance, quantile))


def _largest_centred(pairs: NDArray[np.float64], above: tuple[NDArray[np.int64], ...], clients: int) -> float:
    matrix = np.zeros((clients, clients))
    matrix[above] = pairs
    matrix += matrix.T
    matrix -= matrix.mean(axis=0)
    matrix -= matrix.mean(axis=1, keepdims=True)
    return float(np.linalg.eigvalsh((matrix + matrix.T) / 2)[-1])


def row_softmax(similarity: Tensor, tau_s: float) -> Tensor:
    r"""Mixing weights :math:`q_{ij} \propto e^{\tau_s s_{ij}}`, shifted by the row's largest so nothing overflows."""
    logits = tau_s * (similarity - similarity.amax(dim=1, keepdim=True))
    return torch.softmax(logits, dim=1)


def effective_resistance(relation: Tensor) -> Tensor:
    r"""Resistance :math:`\Omega_{ij} = L^+_{ii} + L^+_{jj} - 2 L^+_{ij}`; infinite between unconnected clients."""
    weights = relation.clamp(min=0.0).fill_diagonal_(0.0)
    laplacian = torch.diag(weights.sum(1)) - weights
    values, vectors = torch.linalg.eigh(laplacian)
    null = values <= values.amax().clamp(min=1.0) * len(values) * torch.finfo(values.dtype).eps
    inverse = (vectors * torch.where(null, 0.0, 1.0 / values.masked_fill(null, 1.0))) @ vectors.T
    diagonal = inverse.diagonal()
    resistance: Tensor = (diagonal[:, None] + diagonal[None, :] - 2 * inverse).clamp(min=0.0).fill_diagonal_(0.0)
    # The null space is spanned by the components' indicators: its projector is zero exactly between components.
    connected = (vectors[:, null] @ vectors[:, null].T).abs() > 1e-9
    resistance[~connected] = torch.inf
    return resistance


def _centred(relation: Tensor) -> Tensor:
    """Without the means of its rows and columns: what is left says who is nearer to whom than to the others.

    The larger the number of clients, the more of a relation is what all of them share. It would fill the exponential.
    """
    without = relation - relation.mean(dim=0, keepdim=True)
    return without - without.mean(dim=1, keepdim=True)


def _exponential(relation: Tensor, tau: float, identity_term: bool) -> Tensor:
    """By eigenvalues: the relation is symmetric. The largest exponent is capped, so the result is always finite."""
    values, vectors = torch.linalg.eigh(tau * relation)
    surplus = (values.amax() - _LARGEST_EXPONENT).clamp(min=0.0)
    grown = (values - surplus).exp()
    if not identity_term:
        grown = grown - (-surplus).exp()
    similarity: Tensor = (vectors * grown) @ vectors.T
    return (similarity + similarity.T) / 2


def _normalised(similarity: Tensor) -> Tensor:
    scale = similarity.diagonal().clamp(min=torch.finfo(similarity.dtype).tiny).rsqrt()
    return scale[:, None] * similarity * scale[None, :]
