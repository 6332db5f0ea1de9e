"""What a client does with a model that it receives: score it, train it on its own graph, score it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedgkd.clients import ClientBatch, Tensors, all_finite
from fedgkd.clients.graphs import TrainingNodes
from fedgkd.errors import SettingError
from fedgkd.models import Classifier, Drop, Dropout, Model
from fedgkd.models.gcn import GCNStep
from fedgkd.models.masked import MASK
from fedgkd.training.by_hand import train_by_hand
from fedgkd.training.evaluation import evaluate
from fedgkd.training.optimiser import Adam
from fedgkd.training.settings import TrainingSettings

MODEL = "model."

Penalty = Callable[[Tensors, Tensors], Tensor]
"""From the weights now and the weights received to a term of each client's loss: ``(clients,)``."""


def start_clients(clients: ClientBatch, model: Model) -> None:
    """The common initial model and an optimiser that has not stepped yet."""
    start = model.initial(clients.seed, len(clients), clients.device)
    clients.state.update({MODEL + name: tensor for name, tensor in start.items()})
    trained = {name: tensor for name, tensor in start.items() if model.trains(name)}
    clients.state.update(Adam.start(trained))


def personal_model(clients: ClientBatch) -> Tensors:
    """The weights that each client has now, in the clients' own memory.

    The state of batches that run side by side may be views of one tensor, whose changes autograd counts together;
    ``.data`` has a count of its own.
    """
    return {name.removeprefix(MODEL): t.data for name, t in clients.state.items() if name.startswith(MODEL)}


def check_settings(settings: TrainingSettings, model: Model) -> None:
    """Raise a SettingError for what this model cannot do."""
    if not settings.decay_unseen and not GCNStep.fits(model):
        raise SettingError("decay_unseen=false is for graph convolutional networks of two layers or more; leave it on")


def local_round(
    clients: ClientBatch,
    download: Tensors,
    model: Model,
    settings: TrainingSettings,
    shares: Callable[[str], bool],
    proximal: float = 0.0,
    mask_l1: float = 0.0,
    penalty: Penalty | None = None,
) -> Tensors:
    r"""Take over the weights received, train, and return what leaves the client.

    Args:
        download: Weights from the server; parameters that it does not hold stay as the client has them.
        shares: Whether a parameter of that name is uploaded.
        proximal: :math:`\lambda` of :math:`\lambda \lVert W - \bar W\rVert^2` (squared norm, no ½) over the weights
            of the download.
        mask_l1: The weight in the loss of the masks' L1 norm, for a model that has masks.
        penalty: A further term of the loss, from the weights now and those received, for an algorithm of your own; in
            every round or in none, since the moments of a model that is trained without one may be kept in another
            order. Weight decay then moves all weights, whatever ``decay_unseen`` says.

    Returns:
        The shared parameters and the client's counts and metrics.
    """
    params = personal_model(clients)
    received = {name: download[name] if name in download else tensor.clone() for name, tensor in params.items()}
    pull = {name: proximal for name in params if proximal and name in download and model.trains(name)}
    l1 = {name: mask_l1 for name in params if mask_l1 and name.startswith(MASK)}
    classifier: Classifier = model
    if GCNStep.fits(model) and penalty is None:
        losses, scores, first = train_by_hand(clients, params, received, model, settings, pull, l1)
    else:
        with clients.timed("training"):
            classifier = model.settled(received, clients.graph)
        scores, first = evaluate(clients, classifier, received), None
        trained = [name for name in params if model.trains(name)]
        losses = _train(clients, params, received, classifier, trained, settings, pull, l1, penalty)
    lost = ~losses.isfinite()
    if lost.any():
        _recover(clients, params, received, lost)
        first = None
    # By a loss that is not a number the server knows whom to keep out.
    report = named("received", scores) | {"loss": losses.masked_fill(lost, torch.nan)}
    report |= named("trained", evaluate(clients, classifier, params, first))
    report["nodes"] = clients.graph.num_scored.double()
    clients.received = received
    return {name: tensor for name, tensor in params.items() if shares(name)} | report


def _train(
    clients: ClientBatch,
    params: Tensors,
    anchor: Tensors,
    classifier: Classifier,
    trained: Sequence[str],
    settings: TrainingSettings,
    pull: Mapping[str, float],
    l1: Mapping[str, float],
    penalty: Penalty | None,
) -> Tensor:
    """Train in place; returns the losses as :class:`~fedgkd.training.by_hand.Trained` has them."""
    optimiser = Adam(settings.lr, settings.weight_decay)
    with clients.timed("training"):
        for name, tensor in params.items():
            tensor.copy_(anchor[name])
        dropout = Dropout(clients, settings.dropout)
        leaves = {name: params[name].requires_grad_() for name in trained}
        losses = torch.empty(0)
        for _ in range(settings.local_epochs):
            losses = training_loss(clients, classifier, params, dropout)
            total = losses if penalty is None else losses + penalty(params, anchor)
            grads = dict(zip(leaves, torch.autograd.grad(total.sum(), list(leaves.values())), strict=True))
            with torch.no_grad():
                # The gradients of our own other terms, without a pass of autograd over all weights.
                for name, strength in pull.items():
                    grads[name].add_(params[name] - anchor[name], alpha=2 * strength)
                for name, weight in l1.items():
                    grads[name].add_(params[name].sign(), alpha=weight)
                optimiser.step(leaves, grads, clients.state)
        for tensor in leaves.values():
            tensor.requires_grad_(False)
    return losses.detach().masked_fill(~all_finite(params), torch.nan)


def training_loss(clients: ClientBatch, model: Classifier, params: Tensors, dropout: Drop | None) -> Tensor:
    """Mean cross-entropy over each client's training nodes: ``(clients,)``."""
    training = clients.graph.training
    return classification_loss(training, model(params, clients.graph, dropout, training.structure))


def classification_loss(training: TrainingNodes, logits: Tensor) -> Tensor:
    """Mean cross-entropy of the training nodes' logits: ``(clients,)``; NaN for a client without any."""
    each = cross_entropy(logits.transpose(1, 2), training.y, reduction="none")
    losses = (each * training.weights).sum(dim=1)
    return losses.masked_fill(training.weights.sum(dim=1) == 0, torch.nan)


def _recover(clients: ClientBatch, params: Tensors, received: Tensors, lost: Tensor) -> None:
    """Clients whose loss or weights are not finite go back to what they received, with a fresh optimiser."""
    for name, tensor in params.items():
        tensor[lost] = received[name][lost]
    Adam.reset(clients.state, lost)


def named(prefix: str, tensors: Tensors) -> Tensors:
    """The same tensors as ``prefix_name``."""
    return {f"{prefix}_{name}": tensor for name, tensor in tensors.items()}
