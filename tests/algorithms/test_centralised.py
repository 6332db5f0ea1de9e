from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn.functional import cross_entropy

import fedgkd
from fedgkd.clients import ClientBatch, GraphBatch, Tensors
from fedgkd.data.federation import Federation
from fedgkd.data.partition import partition
from fedgkd.errors import DataError, SettingError
from fedgkd.experiments.config import make_config
from fedgkd.experiments.directory import RunDirectory
from fedgkd.experiments.model_file import PersonalModel
from fedgkd.experiments.runner import Run, resume
from fedgkd.models import Network
from fedgkd.training.evaluation import evaluate
from tests.graphs import planted_federation, random_graph


def _run(federation: Federation, directory: RunDirectory | None = None, **settings: Any) -> Run:
    config = make_config(("test", {"algorithm": "centralised", "hidden": 8, "threads": 1, "rounds": 3, **settings}))
    run = Run(config, federation, directory)
    if directory is not None:
        directory.create(config)
    run.start()
    return run


def _weights(run: Run) -> Tensors:
    return {name: tensor[0] for name, tensor in run.engine.batches[0].state.items() if name.startswith("model.")}


def _unequal() -> Federation:
    federation = planted_federation(3, nodes=30)
    graphs = (federation.graphs[0], federation.graphs[1].subgraph(np.arange(11)), federation.graphs[2])
    return Federation(graphs, dataset="planted", setting="own-graphs")


def _plain_loop(x: np.ndarray, adjacency: np.ndarray, y: np.ndarray, train: np.ndarray, epochs: int) -> Tensors:
    """Two layers of GCN by dense matrices and torch's own Adam; every training node counts alike."""
    network = Network("gcn", x.shape[1], 8, 2, 4)
    p = {name: tensor[0].requires_grad_() for name, tensor in network.initial(0, 1).items()}
    a = torch.from_numpy(adjacency) + torch.eye(len(x))
    a = a.sum(1).rsqrt()[:, None] * a * a.sum(1).rsqrt()[None, :]
    optimiser = torch.optim.Adam(p.values(), lr=0.01, weight_decay=1e-6)
    for _ in range(epochs):
        h = (a @ torch.from_numpy(x) @ p["convs.0.weight"] + p["convs.0.bias"]).relu()
        h = (a @ h @ p["convs.1.weight"] + p["convs.1.bias"]).relu()
        logits = h @ p["readout.weight"] + p["readout.bias"]
        optimiser.zero_grad()
        cross_entropy(logits[train], torch.from_numpy(y)[train]).backward()
        optimiser.step()
    return {name: tensor.detach() for name, tensor in p.items()}


def test_equals_a_plain_loop_over_the_union() -> None:
    federation = _unequal()
    run = _run(federation, dropout=0.0, local_epochs=2)
    run.execute()
    graphs = federation.graphs
    adjacency = sp.block_diag([graph.adjacency() for graph in graphs]).toarray().astype(np.float32)
    x, y = np.concatenate([graph.x for graph in graphs]), np.concatenate([graph.y for graph in graphs])
    train = np.concatenate([graph.train_mask for graph in graphs])
    expected = _plain_loop(x, adjacency, y, train, epochs=6)
    for name, tensor in _weights(run).items():
        torch.testing.assert_close(tensor, expected[name.removeprefix("model.")], rtol=1e-3, atol=1e-5)


def test_equals_a_plain_loop_over_the_whole_graph() -> None:
    graph = random_graph(60, features=8, classes=4, seed=2)
    run = _run(partition(graph, 3, seed=0), dropout=0.0, local_epochs=2, graph="whole")
    run.execute()
    whole = run.federation.whole
    assert whole is not None
    expected = _plain_loop(whole.x, whole.adjacency().toarray(), whole.y, whole.train_mask, epochs=6)
    for name, tensor in _weights(run).items():
        torch.testing.assert_close(tensor, expected[name.removeprefix("model.")], rtol=1e-3, atol=1e-5)


def test_every_client_is_scored_by_its_own_nodes() -> None:
    """On the union that is the one model on every client's own graph."""
    federation = _unequal()
    run = _run(federation)
    record = run.step()
    for client, graph in enumerate(federation.graphs):
        alone = ClientBatch([client], [graph], seed=0)
        params = {name.removeprefix("model."): tensor[None] for name, tensor in _weights(run).items()}
        expected = evaluate(alone, run.algorithm.model, params)["accuracy"][0]
        found = [record["trained"]["per_client"][split][client] for split in ("train", "val", "test")]
        assert found == pytest.approx(expected.tolist())
        assert run.scores.nodes[client].tolist() == [mask.sum() for mask in graph.masks]


def test_overlapping_clients_share_nodes_of_the_whole_graph() -> None:
    graph = random_graph(60, features=8, classes=4, seed=2)
    federation = partition(graph, 5, "overlapping", seed=0)
    run = _run(federation, graph="whole")
    record = run.step()
    params = {name.removeprefix("model."): tensor[None] for name, tensor in _weights(run).items()}
    assert federation.whole is not None
    assert federation.node_ids is not None
    right = run.algorithm.model(params, GraphBatch([federation.whole]))[0].argmax(-1).numpy() == federation.whole.y
    for nodes, part, found in zip(
        federation.node_ids, federation.graphs, record["trained"]["per_client"]["test"], strict=True
    ):
        assert found == pytest.approx(right[nodes][part.test_mask].mean())


def test_the_same_seed_twice_and_stopped_and_resumed_are_bit_identical(tmp_path: Path) -> None:
    federation = planted_federation(3, nodes=30)
    first = _run(federation, rounds=5)
    expected = first.execute()
    stopped = _run(federation, RunDirectory(tmp_path / "run"), rounds=5, checkpoint_share=1.0)
    for _ in range(2):
        stopped.step()
    resumed = resume(RunDirectory(tmp_path / "run"), federation)
    assert resumed.round == 2
    found = resumed.execute()
    for name, tensor in _weights(first).items():
        assert tensor.equal(_weights(resumed)[name])
    expected.pop("seconds")
    found.pop("seconds")
    assert found == expected
    other = _run(federation, rounds=5, seed=1)
    other.execute()
    assert not any(tensor.equal(_weights(other)[name]) for name, tensor in _weights(first).items())


def test_every_clients_model_file_holds_the_one_model(tmp_path: Path) -> None:
    federation = planted_federation(3, nodes=30)
    directory = RunDirectory(tmp_path / "run")
    result = _run(federation, directory).execute()
    models = [PersonalModel.load(directory.model_file(client)) for client in range(3)]
    for client, (model, graph) in enumerate(zip(models, federation.graphs, strict=True)):
        assert all(tensor.equal(models[0].params[name]) for name, tensor in model.params.items())
        right = model.probabilities(graph).argmax(axis=1) == graph.y
        assert right[graph.test_mask].mean() == pytest.approx(result["per_client"][client])
    assert result["parameters_shared"] == 0


def test_beats_what_clients_learn_alone() -> None:
    federation = planted_federation(4, nodes=80)
    settings = {"hidden": 32, "rounds": 25, "threads": 1}
    alone = fedgkd.run("local", federation, **settings).result()["test_accuracy"]
    assert fedgkd.run("centralised", federation, **settings).result()["test_accuracy"] > alone


def test_own_graphs_have_no_whole() -> None:
    with pytest.raises(DataError, match="there is no whole graph"):
        _run(planted_federation(2), graph="whole")


@pytest.mark.parametrize("setting", [{"participation": 0.5}, {"dropout_rate": 0.1}, {"select": "client"}])
def test_settings_without_meaning_for_one_model_are_refused(setting: dict[str, Any]) -> None:
    (name,) = setting
    with pytest.raises(SettingError, match=f"{name} must be .*: centralised trains one model for all clients"):
        make_config(("test", {"algorithm": "centralised", **setting}))
