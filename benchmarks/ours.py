"""fedgkd itself, through the code that a run executes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.timing import seconds
from fedgkd.clients import Tensors
from fedgkd.data.federation import Federation
from fedgkd.data.graph import Graph
from fedgkd.experiments.config import Config, make_config
from fedgkd.experiments.directory import RunDirectory
from fedgkd.experiments.runner import Run


def configure(algorithm: str, threads: int, settings: Mapping[str, Any]) -> Config:
    """As ``fedgkd run`` would, but never out of patience."""
    fixed = {"algorithm": algorithm, "threads": threads, "patience": 0}
    return make_config(("benchmark", fixed), ("--set", settings))


class Ours:
    """A run that has started; ``train`` does the clients' part of a round with any number of epochs."""

    def __init__(self, config: Config, federation: Federation, folder: Path | None = None) -> None:
        directory = None if folder is None else RunDirectory(folder)
        if directory is not None:
            directory.create(config)
        self.config = config
        self.run = Run(config, federation, directory)
        self.run.start()
        # As in later rounds, when every client receives a model of its own; before round 1 they share one copy.
        self.received = {name: tensor.contiguous() for name, tensor in self.run.models.items()}
        self._cohort = range(federation.num_clients)
        self._round = 0

    @property
    def batches(self) -> list[tuple[Graph, ...]]:
        """The graphs of the clients that the engine batches together."""
        return [batch.graph.graphs for batch in self.run.engine.batches]

    def train(self, epochs: int) -> Tensors:
        """A client's step of the algorithm: training, evaluation, distillation; returns the uploads."""
        self._round += 1
        federation = self.run.federation
        network = self.config.network(federation.num_features, federation.num_classes)
        settings = dataclasses.replace(self.config.method, local_epochs=epochs)
        algorithm = self.config.algorithm(settings, network, federation.num_clients, self.config.run.seed)
        return self.run.engine.run(algorithm.client_step, self.received, self._cohort, self._round)

    def time_training(self, epochs: int) -> float:
        """Seconds of a client step less evaluation and distillation: all that training takes, whatever it prepares."""
        took = seconds(partial(self.train, epochs))
        activities = self.run.engine.seconds
        return took - activities["evaluation"] - activities["distillation"]

    def changed_parameters(self) -> list[int]:
        """How many parameters of each batch an epoch moves: counted by comparing what leaves with what came in."""
        uploads = self.train(1)
        moved = torch.stack([_moved(uploads[name], received) for name, received in self.received.items()]).sum(dim=0)
        return [int(moved[list(batch.ids)].sum()) for batch in self.run.engine.batches]


def _moved(after: Tensor, before: Tensor) -> Tensor:
    """Entries in those rows of a parameter that moved at all, per client."""
    return (after != before).any(dim=-1).flatten(1).sum(dim=1) * after.shape[-1]
