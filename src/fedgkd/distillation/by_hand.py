r"""The gradient of a distillation step for graph convolutional networks, by hand.

The synthetic graph has a handful of nodes, so that autograd's own bookkeeping would cost several times the products.
With logits of edges :math:`\ell = (x x^\top - \gamma + \text{noise}) / \tau_g`, edges :math:`\sigma(\ell) > ½` passed
straight through, :math:`\tilde A = A + I`, :math:`s_i = \deg_i^{-1/2}` and :math:`\hat A = s \tilde A s`, a layer is
:math:`h \mapsto \hat A h W + b`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from fedgkd.clients import Tensors
from fedgkd.models import Model, Network
from fedgkd.models.layers import keep_where_above
from fedgkd.models.network import READOUT


def fits(model: Model) -> bool:
    return isinstance(model, Network) and model.backbone == "gcn"


def loss_gradient(
    network: Network, params: Tensors, x: Tensor, y: Tensor, noise: Tensor, gamma: float, tau_g: float
) -> tuple[Tensor, Tensor]:
    """Of the mean cross-entropy over a client's synthetic nodes: log-probabilities, and the gradient in ``x``."""
    with torch.no_grad():
        soft = torch.bmm(x, x.transpose(1, 2)).sub_(gamma).add_(noise).div_(tau_g).sigmoid_()
        edges = soft > 0.5
        edges.diagonal(dim1=1, dim2=2).fill_(True)  # the self-loops
        looped = edges.to(x.dtype)
        scale = looped.sum(-1).rsqrt()
        adjacency = scale.unsqueeze(2) * looped * scale.unsqueeze(1)

        h, projected, outputs = x, [], []
        for depth in range(network.layers):
            projected.append(torch.bmm(h, params[f"convs.{depth}.weight"]))
            h = torch.baddbmm(params[f"convs.{depth}.bias"], adjacency, projected[-1]).relu_()
            outputs.append(h)
        log_p = log_softmax(torch.baddbmm(params[READOUT + "bias"], h, params[READOUT + "weight"]), dim=-1)

        d = torch.bmm((log_p.exp() - y).div_(x.shape[1]), params[READOUT + "weight"].transpose(1, 2))
        d_adjacency = torch.zeros_like(adjacency)
        for depth in reversed(range(network.layers)):
            d = keep_where_above(d, outputs[depth], 0.0)
            d_adjacency.baddbmm_(d, projected[depth].transpose(1, 2))
            d = torch.bmm(torch.bmm(adjacency, d), params[f"convs.{depth}.weight"].transpose(1, 2))
        d_edges = _through_normalisation(d_adjacency, adjacency, scale)
        d_products = d_edges.mul_(soft * (1.0 - soft)).div_(tau_g)
        d_products.diagonal(dim1=1, dim2=2).zero_()  # self-loops are not sampled
        return log_p, d.baddbmm_(d_products + d_products.transpose(1, 2), x)


def _through_normalisation(d: Tensor, adjacency: Tensor, scale: Tensor) -> Tensor:
    r"""From the gradient of :math:`\hat A_{ij} = s_i \tilde A_{ij} s_j` to that of :math:`\tilde A_{ij}`.

    The degree of i is its row's sum, so :math:`\partial s_i / \partial \tilde A_{ij} = -s_i^3 / 2` for every j.
    """
    weighted = d * adjacency
    d_degree = (weighted.sum(2) + weighted.sum(1)).mul_(scale.square()).mul_(-0.5)
    return torch.addcmul(d_degree.unsqueeze(2), d, scale.unsqueeze(2) * scale.unsqueeze(1))
