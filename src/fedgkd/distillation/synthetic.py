"""The synthetic graph: features, soft labels, and edges sampled from the features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedgkd.clients import DenseStructure
from fedgkd.randomness import stream


@dataclass(frozen=True)
class SyntheticGraph:
    """``x`` is ``(clients, m·classes, features)``, ``y`` the soft labels ``(clients, m·classes, classes)``."""

    x: Tensor
    y: Tensor


def common_start(
    seed: int, clients: int, nodes_per_class: int, num_classes: int, num_features: int, scale: float
) -> SyntheticGraph:
    """The graph that everybody starts from: Gaussian features of that scale, ``nodes_per_class`` one-hot labels each.

    Every client draws it from the run's seed, which they all know, so it does not have to be sent.
    """
    rows = nodes_per_class * num_classes
    x = torch.from_numpy(stream(seed, "synthetic start").standard_normal((rows, num_features), np.float32)) * scale
    y = torch.eye(num_classes).repeat_interleave(nodes_per_class, dim=0)
    return SyntheticGraph(x.repeat(clients, 1, 1), y.repeat(clients, 1, 1))


def edge_noise(seed: int, round_: int, steps: int, rows: int) -> Sequence[Tensor]:
    """Logistic noise (the difference of two Gumbels) per step and unordered pair, common to all clients of a round."""
    uniform = stream(seed, "edge noise", round_).uniform(size=(steps, rows, rows))
    upper = np.triu(np.log(uniform) - np.log1p(-uniform), k=1)
    return list(torch.from_numpy((upper + upper.transpose(0, 2, 1)).astype(np.float32)))


def sample_edges(x: Tensor, noise: Tensor, gamma: float, tau_g: float) -> DenseStructure:
    r"""Edges with logit :math:`(\langle x_u, x_v\rangle - \gamma + \text{noise}) / \tau_g`, 0/1 by straight-through.

    The diagonal is left out: the layers add a self-loop to every node themselves.
    """
    soft = torch.sigmoid((x @ x.transpose(1, 2) - gamma + noise) / tau_g)
    hard = (soft > 0.5).to(soft.dtype)
    off_diagonal = 1.0 - torch.eye(x.shape[1], device=x.device)
    return DenseStructure((hard + (soft - soft.detach())) * off_diagonal)


def project_to_simplex(y: Tensor) -> Tensor:
    """The nearest distribution to each row, in the Euclidean sense (Duchi et al. 2008)."""
    # It is the same for a row that is shifted as a whole; near 0, the 1 below is not lost in rounding.
    y = y - y.amax(dim=-1, keepdim=True)
    ordered = y.sort(dim=-1, descending=True).values
    counts = torch.arange(1, y.shape[-1] + 1, device=y.device)
    thresholds = (ordered.cumsum(-1) - 1.0) / counts
    # The largest always counts, but for NaN, which is left for others to find.
    last = (ordered > thresholds).sum(-1, keepdim=True).clamp(min=1) - 1
    return (y - thresholds.gather(-1, last)).clamp(min=0.0)
