"""Which of its two models a client prefers, the just-trained or the received one, and what it keeps as its best."""

from __future__ import annotations

import torch
from torch import Tensor

from fedgkd.clients import ClientBatch, Tensors
from fedgkd.models.network import part
from fedgkd.training.evaluation import VAL
from fedgkd.training.local import personal_model

PREFERRED = "preferred."


def prefers_received(report: Tensors) -> Tensor:
    """Whose own validation nodes like the received model better than the trained one: ``(clients,)``."""
    return report["received_accuracy"][:, VAL] > report["trained_accuracy"][:, VAL]


def start_preferring(clients: ClientBatch) -> None:
    """Before the first round there is only one model to prefer."""
    clients.state.update({PREFERRED + name: tensor.clone() for name, tensor in personal_model(clients).items()})


def choose_preferred(clients: ClientBatch, report: Tensors) -> None:
    """Every client sets aside the model that it prefers; private state, so that it lasts while a client is absent."""
    better = prefers_received(report)
    for name, trained in personal_model(clients).items():
        rows = better.view(-1, *(1 for _ in trained.shape[1:]))
        clients.state[PREFERRED + name] = torch.where(rows, clients.received[name], trained)


def keep_model(clients: ClientBatch) -> None:
    """Keep what each client has set aside, or else its model as it is now."""
    model = part(clients.state, PREFERRED) or personal_model(clients)
    for name, tensor in model.items():
        if name in clients.kept:
            clients.kept[name].copy_(tensor)
        else:
            clients.kept[name] = tensor.clone()
