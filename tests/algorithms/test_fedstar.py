from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgkd.clients import Tensors
from fedgkd.data.federation import Federation
from fedgkd.experiments.config import make_config
from fedgkd.experiments.model_file import PersonalModel
from fedgkd.experiments.runner import Run
from fedgkd.training.local import personal_model
from tests.graphs import planted_federation


def _run(federation: Federation, **settings: Any) -> Run:
    config = make_config(("test", {"algorithm": "fedstar", "hidden": 8, "threads": 1, "rounds": 3, **settings}))
    run = Run(config, federation, None)
    run.start()
    return run


def _models(run: Run) -> Tensors:
    return {name: tensor.clone() for name, tensor in personal_model(run.engine.batches[0]).items()}


def test_the_structure_channel_is_averaged_and_the_feature_channel_stays() -> None:
    run = _run(planted_federation(3))
    run.step()
    trained = _models(run)
    run.step()
    received = run.engine.batches[0].received
    assert not trained["structure.convs.0.weight"][0].equal(trained["structure.convs.0.weight"][1])
    for name, tensor in received.items():
        if name.startswith("structure."):
            mean = trained[name].mean(dim=0)
            assert tensor.sub(mean).abs().max() < 1e-6, name
        else:
            assert tensor.equal(trained[name]), name
    assert any(name.startswith("feature.") for name in received)


def test_only_the_structure_channel_is_uploaded() -> None:
    run = _run(planted_federation(2))
    run.step()
    shared = {name for name in run.algorithm.uploads if "." in name}
    assert shared == {name for name in run.algorithm.model.parameters if name.startswith("structure.")}
    size = (32 * 8 + 8) + 2 * (8 * 8 + 8)
    assert run.engine.bytes_down == 4 * size
    assert run.result()["parameters_shared"] == size
    assert run.result()["parameters"] > 2 * size


def test_isolated_nodes_train_and_predict() -> None:
    federation = planted_federation(2, nodes=40)
    graph = federation.graphs[0]
    kept = (graph.edge_index >= 15).all(axis=0)
    lonely = replace(graph, edge_index=graph.edge_index[:, kept])
    run = _run(replace(federation, graphs=(lonely, federation.graphs[1])))
    result = run.execute()
    assert np.isfinite(result["test_accuracy"])
    assert all(tensor.isfinite().all() for tensor in _models(run).values())


def test_the_sizes_of_the_encoding_are_settings() -> None:
    run = _run(planted_federation(2), walk_steps=3, max_degree=4)
    assert run.algorithm.model.parameters["structure.embed.weight"].shape == (7, 8)
    run.step()


@pytest.mark.parametrize("backbone", ["gcn", "sage", "gat", "gin"])
def test_the_feature_channel_takes_any_convolution(backbone: str) -> None:
    run = _run(planted_federation(2, nodes=20), model=backbone, rounds=1)
    assert np.isfinite(run.step()["loss"])


def test_a_saved_model_predicts_what_was_scored(tmp_path: Path) -> None:
    federation = planted_federation(2)
    run = _run(federation, rounds=5)
    result = run.execute()
    for client, (model, graph) in enumerate(zip(run.personal_models(), federation.graphs, strict=True)):
        model.save(tmp_path / "model.safetensors")
        loaded = PersonalModel.load(tmp_path / "model.safetensors")
        right = loaded.probabilities(graph).argmax(axis=1) == graph.y
        assert right[graph.test_mask].mean() == pytest.approx(result["per_client"][client])
