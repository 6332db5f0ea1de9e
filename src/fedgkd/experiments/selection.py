"""Which model a client is scored by and keeps: the just-trained one, or another that it sets aside."""

from __future__ import annotations

import torch
from torch import Tensor

from fedgkd.clients import ClientBatch, Tensors
from fedgkd.models.network import Model, part
from fedgkd.training import evaluate
from fedgkd.training.evaluation import VAL
from fedgkd.training.local import named, personal_model

SELECT = {
    "trained": "just-trained",
    "client": "chosen by each client",
    "midpoint": "half-way from received to trained",
}
"""The choices, and how records call the model that each scores."""

SELECTED = ("selected_accuracy", "selected_macro_f1")
"""What is reported besides, if the model that is scored is neither the trained nor the received one."""

_ASIDE = "aside."


def prefers_received(report: Tensors) -> Tensor:
    """Whose own validation nodes like the received model better than the trained one: ``(clients,)``."""
    return report["received_accuracy"][:, VAL] > report["trained_accuracy"][:, VAL]


def start_setting_aside(clients: ClientBatch, select: str) -> None:
    """Before the first round there is only one model."""
    if select != "trained":
        clients.state.update({_ASIDE + name: tensor.clone() for name, tensor in personal_model(clients).items()})


def set_aside(clients: ClientBatch, model: Model, report: Tensors, select: str) -> Tensors:
    """Every client sets aside the model that it is to be scored by, if that is not the trained one.

    It is private state, so that it lasts while a client is absent.

    Returns:
        What the clients report beyond ``report``: the scores of a model that is neither trained nor received.
    """
    if select == "trained":
        return {}
    trained, received = personal_model(clients), clients.received
    if select == "client":
        better = prefers_received(report)
        aside = {name: torch.where(_rows(better, own), received[name], own) for name, own in trained.items()}
        scores: Tensors = {}
    else:
        aside = {name: received[name].lerp(own, 0.5) for name, own in trained.items()}
        scores = named("selected", evaluate(clients, model, aside))
    clients.state.update({_ASIDE + name: tensor for name, tensor in aside.items()})
    return scores


def keep_model(clients: ClientBatch) -> None:
    """Keep what each client has set aside, or else its model as it is now."""
    model = part(clients.state, _ASIDE) or personal_model(clients)
    for name, tensor in model.items():
        if name in clients.kept:
            clients.kept[name].copy_(tensor)
        else:
            clients.kept[name] = tensor.clone()


def _rows(chosen: Tensor, like: Tensor) -> Tensor:
    """One truth per client, in a shape that goes with ``like``."""
    return chosen.view(-1, *(1 for _ in like.shape[1:]))
