"""An algorithm of one's own that returns the wrong thing gets a sentence, in a simulation and in a federation alike."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedgkd.algorithms import FedAvg
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.errors import SettingError
from fedgkd.experiments.config import make_config
from fedgkd.experiments.runner import Run
from fedgkd.federation.checks import rehearse
from fedgkd.models import Network
from fedgkd.training.local import personal_model
from tests.graphs import planted_federation


class Changed(FedAvg):
    """FedAvg whose upload is changed before it is returned."""

    def change(self, upload: Tensors) -> Any:
        return upload

    def client_step(self, clients: ClientBatch, download: Tensors) -> Any:
        return self.change(super().client_step(clients, download))


class NoMetrics(Changed):
    def change(self, upload: Tensors) -> Any:
        return {name: upload[name] for name in self.shared}


class NoReadout(Changed):
    def change(self, upload: Tensors) -> Any:
        return {name: tensor for name, tensor in upload.items() if name != "readout.bias"}


class NoFeature(Changed):
    extra_uploads = ("feature",)


class Undeclared(Changed):
    def change(self, upload: Tensors) -> Any:
        return upload | {"labels": upload["loss"]}


class NotATensor(Changed):
    def change(self, upload: Tensors) -> Any:
        return upload | {"loss": upload["loss"].tolist()}


class NotADict(Changed):
    def change(self, upload: Tensors) -> Any:
        return list(upload.values())


class OneLoss(Changed):
    def change(self, upload: Tensors) -> Any:
        return upload | {"loss": upload["loss"].mean()}


class NoSplits(Changed):
    def change(self, upload: Tensors) -> Any:
        return upload | {"nodes": upload["nodes"].sum(dim=1)}


class Flat(Changed):
    def change(self, upload: Tensors) -> Any:
        return upload | {"readout.weight": upload["readout.weight"].flatten(1)}


class Doubled(Changed):
    def change(self, upload: Tensors) -> Any:
        return upload | {"readout.weight": upload["readout.weight"].double()}


class FewerRows(Changed):
    extra_uploads = ("feature",)

    def change(self, upload: Tensors) -> Any:
        return upload | {"feature": upload["loss"][:0]}


class NoState(Changed):
    def start(self, clients: ClientBatch) -> None:
        clients.state["own"] = torch.zeros(len(clients))

    def client_step(self, clients: ClientBatch, download: Tensors) -> Any:
        super().start(clients)
        upload = super().client_step(clients, download)
        clients.state.clear()
        return upload


class ByHand(FedAvg):
    """Everything that local_round does, but for the model that it started from."""

    def client_step(self, clients: ClientBatch, download: Tensors) -> Tensors:
        upload = super().client_step(clients, download)
        clients.received = {}
        return upload


def run(algorithm: type[FedAvg], **settings: Any) -> Run:
    values = {"algorithm": f"{__name__}:{algorithm.__name__}", "rounds": 1, "hidden": 8, "threads": 1, **settings}
    run = Run(make_config(("test", values)), planted_federation(3, nodes=30), None)
    run.start()
    run.step()
    return run


def rehearsed(algorithm: type[FedAvg], select: str = "trained") -> Tensors:
    network = Network("gcn", num_features=4, hidden=8, layers=2, num_classes=4)
    return rehearse(algorithm(algorithm.Settings(), network, 3, seed=0), select)


WRONG = [
    (NoMetrics, "does not return 'received_accuracy', 'received_macro_f1', 'loss', .*'nodes': .*local_round returns"),
    (NoReadout, "does not return 'readout.bias': its shares"),
    (NoFeature, "does not return 'feature': its extra_uploads names that"),
    (Undeclared, "returns 'labels': name in extra_uploads"),
    (NotATensor, "returns 'loss' as a list; it must be a tensor"),
    (NotADict, "must return a dict of named tensors, as local_round does; not a list"),
    (NoSplits, r"returns 'nodes' of shape \(\d,\); for \d clients it must be \(\d, 3\)"),
    (Flat, r"returns 'readout.weight' of shape \(\d, 32\); for \d clients it must be \(\d, 8, 4\)"),
    (Doubled, "returns 'readout.weight' as torch.float64; weights are torch.float32"),
    (OneLoss, r"returns 'loss' of shape \(\); for \d clients it must be \(\d,\)"),
    (FewerRows, r"returns 'feature' of shape \(0,\); for \d clients it must be \(\d,\)"),
    (NoState, "has no 'convs.0.bias', .* in clients.state"),
]


@pytest.mark.parametrize(("algorithm", "sentence"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_missing_or_wrong_is_named(algorithm: type[FedAvg], sentence: str) -> None:
    for go in (run, rehearsed):
        with pytest.raises(SettingError, match=f"{algorithm.__name__}.*{sentence}"):
            go(algorithm)


@pytest.mark.parametrize("select", ["client", "midpoint"])
def test_a_choice_between_models_needs_the_received_ones(select: str) -> None:
    with pytest.raises(SettingError, match=f"select={select} needs the models .* ByHand.* no 'convs.0.bias'"):
        run(ByHand, select=select)
    with pytest.raises(SettingError, match=f"select={select} needs"):
        rehearsed(ByHand, select)


def test_what_is_right_passes() -> None:
    """Without local_round's help with the received model, a run that scores the trained one needs none."""
    assert run(ByHand).round == 1
    state = run(Changed, select="midpoint").engine.batches[0]
    assert personal_model(state)["readout.weight"].shape == (3, 8, 4)
