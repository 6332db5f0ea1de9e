"""Row i of the mixing matrix makes client i's model: an asymmetric matrix, so that its transpose gives other models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedgkd.algorithms import FedAvg, ServerRound
from fedgkd.clients import Tensors
from fedgkd.collaboration import Mixing
from fedgkd.experiments.config import make_config
from fedgkd.experiments.directory import RunDirectory
from fedgkd.experiments.runner import Run, resume
from fedgkd.experiments.serving import serve
from fedgkd.models import Network
from fedgkd.training.local import MODEL
from tests.graphs import planted_federation

# Not symmetric, nor is any part of it.
ROWS = ((0.5, 0.125, 0.375), (0.0, 0.25, 0.75), (0.125, 0.75, 0.125))
ALGORITHM = f"{__name__}:Asymmetric"


class Asymmetric(FedAvg):
    """FedAvg with those rows over whoever is there."""

    def server_step(self, uploads: Tensors, server: ServerRound) -> Mixing:
        weights = torch.tensor(ROWS, dtype=torch.float64)[list(server.cohort)][:, list(server.cohort)]
        memory = {"seen": uploads["loss"]}
        return Mixing(weights / weights.sum(dim=1, keepdim=True), memory=memory, facts={"round": server.round})


def algorithm() -> Asymmetric:
    config = make_config(("here", {"algorithm": "fedavg"}))
    return Asymmetric(config.method, Network("gcn", num_features=1, hidden=1, layers=1, num_classes=1), 3, seed=0)


def models(*values: float) -> Tensors:
    """Each client's parameters are all the same number."""
    shapes = algorithm().model.initial(0, 1)
    return {name: torch.tensor(values).view(-1, *(1 for _ in t.shape[1:])) for name, t in shapes.items()}


def rows_of(found: Tensors) -> list[list[float]]:
    """The numbers of every parameter, which are all alike."""
    return [tensor.flatten().tolist() for tensor in found.values()]


def test_serve_gives_client_i_the_mixture_of_row_i() -> None:
    uploads = models(8.0, 16.0, 32.0) | {"loss": torch.zeros(3)}
    _, mixed = serve(algorithm(), uploads, [0, 1, 2], 1, models(1.0, 2.0, 3.0), {})
    # 4 + 2 + 12, 0 + 4 + 24, 1 + 12 + 4; the transpose would give 8, 29 and 19.
    assert rows_of(mixed) == [[18.0, 28.0, 17.0]] * 4


def test_serve_mixes_those_present_and_leaves_the_others_their_models() -> None:
    uploads = models(8.0, 32.0) | {"loss": torch.zeros(2)}
    _, mixed = serve(algorithm(), uploads, [0, 2], 1, models(1.0, 2.0, 3.0), {})
    # Among clients 0 and 2, row 0 is (4/7, 3/7) and row 2 is (1/2, 1/2).
    assert rows_of(mixed) == [pytest.approx([128 / 7, 2.0, 20.0])] * 4


def test_the_server_step_is_told_the_round_who_is_there_and_where_they_started() -> None:
    told: list[ServerRound] = []

    class Asked(Asymmetric):
        def server_step(self, uploads: Tensors, server: ServerRound) -> Mixing:
            told.append(server)
            return super().server_step(uploads, server)

    config = make_config(("here", {"algorithm": "fedavg"}))
    asked = Asked(config.method, algorithm().network, 3, seed=0)
    loss = torch.tensor([1.0, 2.0])
    start, memory = models(1.0, 2.0, 3.0), {"kept": torch.ones(1)}
    mixing, _ = serve(asked, models(8.0, 16.0) | {"loss": loss}, [1, 2], 7, start, memory)
    (server,) = told
    assert (server.round, server.cohort, server.memory) == (7, (1, 2), memory)
    assert rows_of(server.downloads) == [[2.0, 3.0]] * 4
    loss.zero_()  # a client goes on with its own memory
    assert mixing.memory["seen"].tolist() == [1.0, 2.0]
    assert mixing.facts == {"round": 7}


def run_of(tmp_path: Path, **settings: Any) -> Run:
    values = {"algorithm": ALGORITHM, "rounds": 4, "hidden": 8, "threads": 1, "checkpoint_share": 1.0, **settings}
    config = make_config(("test", values))
    directory = RunDirectory(tmp_path / "run")
    run = Run(config, planted_federation(3, nodes=30), directory)
    directory.create(config)
    run.start()
    return run


def trained(run: Run) -> Tensors:
    """Every client's own weights after its training, which are what it uploads."""
    state = run.engine.collect(lambda batch: batch.state)
    return {name: state[MODEL + name].clone() for name in run.algorithm.shared}


def mixtures(uploads: Tensors) -> Tensors:
    """Client i's next model, term by term."""
    return {
        name: torch.stack([sum(share * tensor[j] for j, share in enumerate(row)) for row in ROWS])
        for name, tensor in uploads.items()
    }


def test_in_a_run_every_client_trains_the_mixture_of_its_own_row(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    run.step()
    expected = mixtures(trained(run))
    run.step()
    received = run.engine.collect(lambda batch: batch.received)
    for name, tensor in expected.items():
        torch.testing.assert_close(received[name], tensor)
    assert not torch.equal(expected["readout.weight"][0], expected["readout.weight"][1])


def test_a_resumed_run_mixes_as_before_and_records_the_matrix(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    run.step()
    expected = mixtures(trained(run))
    directory = RunDirectory(tmp_path / "run")
    again = resume(directory, planted_federation(3, nodes=30))
    for name, tensor in expected.items():
        torch.testing.assert_close(again.models[name], tensor)
    again.execute()
    with np.load(directory.relations_file) as recorded:
        assert recorded["Q"].tolist() == [[list(row) for row in ROWS]] * 4
