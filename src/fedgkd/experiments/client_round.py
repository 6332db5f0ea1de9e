"""The client's part of a round, the same in a simulation and in a real federation."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from fedgkd.algorithms import REPORT, Algorithm, Oracle
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.errors import SettingError, quoted
from fedgkd.experiments.selection import set_aside
from fedgkd.training.evaluation import SPLITS
from fedgkd.training.local import personal_model


def client_round(algorithm: Algorithm, clients: ClientBatch, download: Tensors, select: str) -> Tensors:
    """The algorithm's step, and the model that the client is scored by: returns all that leaves the clients.

    Raises:
        SettingError: If an algorithm of the user's own does not return what it says.
    """
    upload = algorithm.client_step(clients, download)
    _check_names(algorithm, upload)
    for name, tensor in upload.items():
        _check_form(algorithm, clients, name, tensor)
    _check_models(algorithm, clients, select)
    return upload | set_aside(clients, algorithm.model, upload, select)


def _check_names(algorithm: Algorithm, upload: object) -> None:
    who = f"{type(algorithm).__name__}.client_step"
    if not isinstance(upload, dict):
        raise SettingError(f"{who} must return a dict of named tensors, as local_round does; not {_kind(upload)}")
    for names, why in (
        (REPORT, "every client reports that, and local_round returns it"),
        (algorithm.shared, "its shares() says that these weights leave the client"),
        (algorithm.extra_uploads, "its extra_uploads names that"),
    ):
        if missing := [name for name in names if name not in upload]:
            raise SettingError(f"{who} does not return {_quoted(missing)}: {why}")
    if undeclared := sorted(upload.keys() - algorithm.uploads, key=str):
        raise SettingError(f"{who} returns {_quoted(undeclared)}: name in extra_uploads what shall leave the client")


def _check_form(algorithm: Algorithm, clients: ClientBatch, name: str, tensor: object) -> None:
    """One row per client (an oracle reports for all), and the weights as the model has them."""
    who = f"{type(algorithm).__name__}.client_step returns {quoted(name)}"
    if not isinstance(tensor, Tensor):
        raise SettingError(f"{who} as {_kind(tensor)}; it must be a tensor whose axis 0 is the client")
    rows = algorithm.num_clients if isinstance(algorithm, Oracle) else len(clients)
    shape = tuple(tensor.shape)
    if name in algorithm.extra_uploads:
        expected = (rows, *shape[1:])
    elif name in REPORT:
        expected = (rows,) if name == "loss" else (rows, len(SPLITS))
    else:
        expected = (rows, *algorithm.model.parameters[name].shape)
        if tensor.dtype != torch.float32:
            raise SettingError(f"{who} as {tensor.dtype}; weights are {torch.float32}")
    if shape != expected:
        raise SettingError(f"{who} of shape {shape}; for {rows} clients it must be {expected}")


def _check_models(algorithm: Algorithm, clients: ClientBatch, select: str) -> None:
    """What is kept, and scored, is taken from the clients themselves."""
    who = type(algorithm).__name__
    wanted = algorithm.model.parameters.keys()
    if missing := wanted - personal_model(clients).keys():
        raise SettingError(f"{who} has no {_quoted(sorted(missing))} in clients.state; call super().start() in start()")
    if select != "trained" and (missing := wanted - clients.received.keys()):
        raise SettingError(
            f"select={select} needs the models that training started from, but {who}.client_step leaves no "
            f"{_quoted(sorted(missing))} in clients.received; local_round does"
        )


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


def _quoted(names: Iterable[object]) -> str:
    return ", ".join(map(quoted, names))
