from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgkd.data.federation import Federation
from fedgkd.experiments.config import make_config
from fedgkd.experiments.model_file import PersonalModel
from fedgkd.experiments.runner import Run
from fedgkd.training.local import personal_model
from tests.graphs import planted_federation

FIGURES = ("test_accuracy", "val_accuracy", "per_client", "test_macro_f1", "best_round")


def _run(algorithm: str, federation: Federation, **settings: Any) -> Run:
    config = make_config(("test", {"algorithm": algorithm, "hidden": 8, "threads": 1, "rounds": 4, **settings}))
    run = Run(config, federation, None)
    run.start()
    return run


def test_fedsage_is_fedavg_of_graphsage_whatever_the_model() -> None:
    federation = planted_federation(3)
    expected = _run("fedavg", federation, model="sage").execute()
    found = _run("fedsage", federation, model="gcn").execute()
    assert [found[name] for name in FIGURES] == [expected[name] for name in FIGURES]
    assert found["bytes_up"] == expected["bytes_up"]


def test_fedsage_plus_is_fedsage_where_nothing_is_missing() -> None:
    """A generator that never saw a hidden node mends nothing."""
    federation = planted_federation(3)
    expected = _run("fedsage", federation).execute()
    run = _run("fedsage_plus", federation, hidden_share=0.0, generator_epochs=60)
    assert run.step()["generated_neighbours"] == [0, 0, 0]
    found = run.execute()
    assert [found[name] for name in FIGURES] == [expected[name] for name in FIGURES]


def test_fedsage_plus_mends_where_nodes_were_hidden_and_that_matters() -> None:
    federation = planted_federation(3)
    run = _run("fedsage_plus", federation)
    record = run.step()
    assert min(record["generated_neighbours"]) > 0
    assert record["trained"] != _run("fedsage", federation).step()["trained"]


def test_nothing_of_a_clients_graph_is_uploaded() -> None:
    """Whatever leaves has the same shape for a graph of another size, and is the weights of the classifier alone."""
    shapes = []
    for nodes in (40, 61):
        run = _run("fedsage_plus", planted_federation(2, nodes=nodes, features=17))
        uploads = run.engine.run(run.algorithm.client_step, run.models, [0, 1], 1)
        assert uploads.keys() == run.algorithm.uploads
        shapes.append({name: tuple(tensor.shape[1:]) for name, tensor in uploads.items()})
        weights = {name for name in uploads if "." in name}
        assert weights == _run("fedsage", run.federation).algorithm.model.parameters.keys()
        assert not any(name.startswith("generator") for name in uploads if "." in name)
    assert shapes[0] == shapes[1]
    assert shapes[0]["generated"] == (1,)


def test_the_generator_is_private_and_stays_as_it_was_trained() -> None:
    run = _run("fedsage_plus", planted_federation(3))
    batch = run.engine.batches[0]
    before = {name: t.clone() for name, t in personal_model(batch).items() if name.startswith("generator.")}
    run.execute()
    assert before
    for name, tensor in before.items():
        assert tensor.equal(personal_model(batch)[name]), name
        assert not tensor[0].equal(tensor[1]), name
    assert not any("generator" in name for name in batch.state if name.startswith("adam."))


def test_the_generators_epochs_and_weights_are_on_record() -> None:
    run = _run("fedsage_plus", planted_federation(2, features=16, classes=4), generator_epochs=7, hidden=8)
    result = run.execute()
    classifier = 2 * 16 * 8 + 8 + 2 * 8 * 8 + 8 + 8 * 4 + 4
    generator = 2 * 16 * 8 + 8 + 2 * 8 * 8 + 8 + 8 + 1 + (8 * 8 + 8) + (8 * 16 + 16) + 5 * 8
    assert result["parameters"] == classifier + generator
    assert result["parameters_shared"] == classifier
    assert result["epochs_before_round_1"] == 7
    assert result["bytes_down"] == 4 * classifier * 2 * result["rounds"]


@pytest.mark.parametrize("algorithm", ["fedsage", "fedsage_plus"])
def test_a_saved_model_predicts_what_was_scored(algorithm: str, tmp_path: Path) -> None:
    federation = planted_federation(3)
    run = _run(algorithm, federation)
    result = run.execute()
    for client, (model, graph) in enumerate(zip(run.personal_models(), federation.graphs, strict=True)):
        model.save(tmp_path / "model.safetensors")
        loaded = PersonalModel.load(tmp_path / "model.safetensors")
        probabilities = loaded.probabilities(graph)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
        right = probabilities.argmax(axis=1) == graph.y
        assert right[graph.test_mask].mean() == pytest.approx(result["per_client"][client])
