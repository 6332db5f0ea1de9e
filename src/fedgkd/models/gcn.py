r"""The training step of a graph convolutional network, forward and backward by hand.

It does what autograd would do with :class:`~fedgkd.models.Network`, and less: the last convolution and the readout are
evaluated at the training nodes only; inverted dropout's factor goes to the weights after it, which are smaller than the
activations before it; ReLU and dropout share one mask on the way back, where the activation is positive.
"""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from fedgkd.clients import ConstantFeatures, GraphBatch, Tensors
from fedgkd.models.dropout import Dropout
from fedgkd.models.layers import few_outputs, keep_where_above
from fedgkd.models.masked import MASK, MaskedNetwork
from fedgkd.models.network import READOUT, Model, Network, part

FIRST = "convs.0.weight"
"""The weights that multiply the features: all but a few of all weights."""


class GCNStep:
    """Losses and gradients of a batch of clients' networks on their training nodes."""

    def __init__(self, network: Network | MaskedNetwork, graph: GraphBatch, features: ConstantFeatures) -> None:
        everywhere, training = graph.structure.normalised, graph.training
        self._features = features
        self._nodes = graph.num_nodes
        self._y, self._weights = training.y, training.weights
        # Every convolution after the first: how messages pass before its weights, and how many nodes have it.
        self._convolutions = [(f"convs.{i}.", everywhere, graph.num_nodes) for i in range(1, network.layers - 1)]
        self._convolutions.append((f"convs.{network.layers - 1}.", training.structure.normalised, training.counts))

    @staticmethod
    def fits(model: Model) -> TypeGuard[Network | MaskedNetwork]:
        return isinstance(model, Network | MaskedNetwork) and model.backbone == "gcn" and model.layers > 1

    def first(self, params: Tensors) -> Tensor:
        """Output of the first convolution before its ReLU, at all nodes: ``(clients, nodes, hidden)``."""
        return self._features.convolved(params[FIRST]).add_(params["convs.0.bias"])

    def __call__(
        self, params: Tensors, dropout: Dropout, first: Tensor, onto: Tensor | None = None, share: float = 0.0
    ) -> tuple[Tensor, Tensors]:
        """The cross-entropy of each client, and its gradients.

        Args:
            first: What :meth:`first` gives for these parameters; it is overwritten.
            onto, share: The gradient of the first weights is added to that share of a tensor, in its memory.
        """
        after_dropout = [layer + "weight" for layer, _, _ in self._convolutions] + [READOUT + "weight"]
        scaled = {name: params[name] * dropout.scale for name in after_dropout}
        h = dropout.unscaled(first.relu_(), self._nodes)
        outputs, inputs = [h], []
        for layer, messages, counts in self._convolutions:
            inputs.append(messages.multiply(h))
            z = torch.baddbmm(params[layer + "bias"], inputs[-1], scaled[layer + "weight"])
            h = dropout.unscaled(z.relu_(), counts)
            outputs.append(h)
        # Classes before nodes, as they are in memory: softmax and products are slow on a last axis as short as theirs.
        losses, d = self._cross_entropy(few_outputs(h, part(params | scaled, READOUT)).mT)

        grads: Tensors = {READOUT + "bias": d.sum(2).unsqueeze(1), READOUT + "weight": torch.bmm(d, h).mT.contiguous()}
        d = torch.bmm(d.mT, scaled[READOUT + "weight"].mT)
        for (layer, messages, _), x in zip(reversed(self._convolutions), reversed(inputs), strict=True):
            d = _where_positive(outputs.pop(), d)
            d = messages.multiply_transposed(_back(layer, x, d, scaled, grads))
        d = _where_positive(outputs.pop(), d)
        grads["convs.0.bias"] = d.sum(1, keepdim=True)
        grads[FIRST] = self._features.convolved_transposed(d, onto, share)
        for name in scaled:
            grads[name].mul_(dropout.scale)
        return losses, grads

    def _cross_entropy(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The mean over each client's training nodes, NaN if it has none, and the gradient of the logits.

        Args:
            logits: ``(clients, classes, training nodes)``.
        """
        log_p, y, weights = log_softmax(logits, dim=1), self._y.unsqueeze(1), self._weights.unsqueeze(1)
        losses = (log_p.gather(1, y) * -weights).sum((1, 2))
        d = log_p.exp_().mul_(weights)
        d.scatter_add_(1, y, -weights)
        return losses.masked_fill(self._weights.sum(1) == 0, torch.nan), d


class MaskedGCNStep(GCNStep):
    r"""The same for networks with masks: effective weights :math:`W \circ M`, and gradients of both factors.

    The first weights and their mask may have rows behind those of the features' gradient, which have none.
    """

    def first(self, params: Tensors) -> Tensor:
        return super().first(params | {FIRST: params[FIRST] * params[MASK + FIRST]})

    def __call__(
        self, params: Tensors, dropout: Dropout, first: Tensor, onto: Tensor | None = None, share: float = 0.0
    ) -> tuple[Tensor, Tensors]:
        masks = part(params, MASK)
        # The first weights have done their work in ``first``.
        effective = {name: params[name] * mask for name, mask in masks.items() if name != FIRST}
        losses, grads = super().__call__(params | effective, dropout, first)
        for name, mask in masks.items():
            d, rows = grads[name], grads[name].shape[1]
            grads[MASK + name] = d * params[name][:, :rows]
            d.mul_(mask[:, :rows])
        if onto is not None:
            grads[FIRST].add_(onto, alpha=share)
        return losses, grads


def _back(layer: str, x: Tensor, d: Tensor, weights: Tensors, grads: Tensors) -> Tensor:
    """Back through ``x @ weight + bias``: notes the gradients of both, returns that of ``x``."""
    grads[layer + "bias"] = d.sum(1, keepdim=True)
    grads[layer + "weight"] = torch.bmm(x.transpose(1, 2), d)
    return torch.bmm(d, weights[layer + "weight"].transpose(1, 2))


def _where_positive(h: Tensor, d: Tensor) -> Tensor:
    """Back through ReLU and dropout at once: both let pass where the activation after them is positive. In place."""
    return keep_where_above(d, h, 0.0)
