"""A personal model as a file: round trip, predictions, and files that are something else."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fedgkd.clients import GraphBatch
from fedgkd.errors import DataError, RunError
from fedgkd.experiments.model_file import PersonalModel, has_digest
from fedgkd.models import BACKBONES, Network
from tests.graphs import random_graph

NETWORK = Network("gcn", num_features=6, hidden=4, layers=2, num_classes=3)


def personal(network: Network = NETWORK) -> PersonalModel:
    return PersonalModel(
        network,
        network.initial(seed=1, clients=1),
        class_names=("red", "green", "blue"),
        feature_names=tuple("abcdef"),
        origin={"algorithm": "fedgkd", "client": "client-3"},
    )


@pytest.mark.parametrize("backbone", BACKBONES)
def test_round_trip(tmp_path: Path, backbone: str) -> None:
    model = personal(Network(backbone, num_features=6, hidden=4, layers=3, num_classes=3))
    model.save(tmp_path / "models" / "client-3.safetensors")
    found = PersonalModel.load(tmp_path / "models" / "client-3.safetensors")
    assert replace(found, params={}) == replace(model, params={})
    assert found.params.keys() == model.params.keys()
    assert all(found.params[name].equal(tensor) for name, tensor in model.params.items())


def test_names_are_optional(tmp_path: Path) -> None:
    PersonalModel(NETWORK, NETWORK.initial(0, 1)).save(tmp_path / "m.safetensors")
    found = PersonalModel.load(tmp_path / "m.safetensors")
    assert (found.class_names, found.feature_names, found.origin) == (None, None, {})


def test_probabilities_are_the_models() -> None:
    graph, model = random_graph(9), personal()
    found = model.probabilities(graph)
    expected = NETWORK(model.params, GraphBatch([graph]))[0].softmax(-1).numpy()
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(found.sum(1), 1.0, rtol=1e-6)


def test_a_graph_needs_neither_splits_nor_labels() -> None:
    graph = random_graph(9)
    bare = replace(graph, y=np.full(9, -1), train_mask=None, val_mask=None, test_mask=None)
    np.testing.assert_array_equal(personal().probabilities(bare), personal().probabilities(graph))


def test_features_that_do_not_fit_are_refused_with_the_reason() -> None:
    with pytest.raises(DataError) as caught:
        personal().probabilities(random_graph(features=5, name="mine"))
    assert str(caught.value) == "mine has 5 feature columns, but the model was trained on 6"
    renamed = replace(random_graph(name="mine"), feature_names=("a", "b", "x", "d", "e", "f"))
    with pytest.raises(DataError) as caught:
        personal().probabilities(renamed)
    assert str(caught.value) == "mine: feature column 2 is 'x', but the model knows it as 'c'"


def whole(tmp_path: Path) -> Path:
    personal().save(tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: b"not a model\n" * 50,
        lambda data: data.replace(b"fedgkd-model-2", b"fedgkd\xffmodel-2"),
        lambda data: data + b"more",
    ],
    ids=["truncated", "empty", "text", "bytes", "longer"],
)
def test_damaged_files(tmp_path: Path, damage: Any) -> None:
    path = whole(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(RunError, match=r"m.safetensors is not a model file of fedgkd, or is damaged"):
        PersonalModel.load(path)


GOOD = {
    "format": "fedgkd-model-1",
    "model": {"kind": "Network", "backbone": "gcn", "num_features": 6, "hidden": 4, "layers": 2, "num_classes": 3},
    "class_names": None,
    "feature_names": None,
    "origin": {},
}


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {"pytorch": "yes"},
        {"fedgkd": "no json"},
        {"fedgkd": "[]"},
        {"fedgkd": "{}"},
        {"fedgkd": json.dumps(GOOD | {"model": {"kind": "Transformer"}})},
        {"fedgkd": json.dumps(GOOD | {"model": {"kind": "Network", "size": 3}})},
        {"fedgkd": json.dumps(GOOD | {"model": GOOD["model"] | {"backbone": "none"}})},  # type: ignore[operator]
        {"fedgkd": json.dumps(GOOD | {"model": GOOD["model"] | {"layers": "two"}})},  # type: ignore[operator]
        {"fedgkd": json.dumps({name: value for name, value in GOOD.items() if name != "origin"})},
        {"fedgkd": json.dumps(GOOD | {"class_names": 3})},
    ],
)
def test_files_of_others(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    save_file(NETWORK.initial(0, 1), tmp_path / "m.safetensors", metadata)
    with pytest.raises(RunError, match=r"m.safetensors is not a model file of fedgkd, or is damaged"):
        PersonalModel.load(tmp_path / "m.safetensors")


def test_files_of_another_format(tmp_path: Path) -> None:
    metadata = {"fedgkd": json.dumps(GOOD | {"format": "fedgkd-model-99"})}
    save_file(NETWORK.initial(0, 1), tmp_path / "m.safetensors", metadata)
    with pytest.raises(
        RunError, match="format 'fedgkd-model-99'; this version reads fedgkd-model-2 and fedgkd-model-1"
    ):
        PersonalModel.load(tmp_path / "m.safetensors")


def described(**model: Any) -> dict[str, Any]:
    return GOOD | {"model": GOOD["model"] | model}  # type: ignore[operator]


@pytest.mark.parametrize(
    "description",
    [
        described(hidden=0),
        described(hidden=True),
        described(hidden=4.0),
        described(layers=10**8),
        described(layers=0),
        described(num_classes=1),
        described(num_classes=-3),
        GOOD | {"class_names": ["a", "b"]},
        GOOD | {"class_names": ["a", "b", "a"]},
        GOOD | {"class_names": ["a", "b", ""]},
        GOOD | {"class_names": "abc"},
        GOOD | {"class_names": ["a", "b", 3]},
        GOOD | {"feature_names": list("abcde")},
        GOOD | {"origin": 3},
        GOOD | {"origin": [[[]]]},
        GOOD | {"origin": [["a", 1]]},
        GOOD | {"model": list(GOOD["model"].items())},  # type: ignore[attr-defined]
    ],
)
def test_descriptions_that_cannot_be(tmp_path: Path, description: dict[str, Any]) -> None:
    save_file(NETWORK.initial(0, 1), tmp_path / "m.safetensors", {"fedgkd": json.dumps(description)})
    began = time.process_time()
    with pytest.raises(RunError, match=r"m.safetensors is not a model file of fedgkd, or is damaged"):
        PersonalModel.load(tmp_path / "m.safetensors")
    assert time.process_time() - began < 1


def test_json_nested_too_deep(tmp_path: Path) -> None:
    text = json.dumps(GOOD).replace('"origin": {}', '"origin": ' + '{"a":' * 100_000 + "1" + "}" * 100_000)
    save_file(NETWORK.initial(0, 1), tmp_path / "m.safetensors", {"fedgkd": text})
    with pytest.raises(RunError, match=r"m.safetensors is not a model file of fedgkd, or is damaged"):
        PersonalModel.load(tmp_path / "m.safetensors")


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int64])
def test_weights_of_another_precision_are_refused(tmp_path: Path, dtype: torch.dtype) -> None:
    params = {name: tensor.to(dtype) for name, tensor in NETWORK.initial(0, 1).items()}
    save_file(params, tmp_path / "m.safetensors", {"fedgkd": json.dumps(GOOD)})
    with pytest.raises(RunError, match="the tensors do not fit the model that the file describes"):
        PersonalModel.load(tmp_path / "m.safetensors")


def test_a_model_that_has_no_answer_says_so() -> None:
    graph = random_graph(9, name="mine")
    huge = {name: tensor * 3e37 for name, tensor in NETWORK.initial(0, 1).items()}
    with pytest.raises(DataError, match="mine: the model has no answer for node 0, whose features or weights are too"):
        PersonalModel(NETWORK, huge).probabilities(graph)


def test_classes_that_do_not_fit_are_refused() -> None:
    graph = random_graph(9, name="mine")
    with pytest.raises(DataError, match="mine: the classes are green, red, blue, but the model knows red, green, blue"):
        personal().probabilities(replace(graph, class_names=("green", "red", "blue")))
    more = replace(graph, y=np.arange(9) % 5, num_classes=5)
    with pytest.raises(DataError, match=r"mine: node 4 has label 4, but the model knows the 3 classes 0\.\.2"):
        personal().probabilities(more)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.safetensors")
    with pytest.raises(RunError, match=r"cannot read the model .*m\.safetensors: it is not a file"):
        PersonalModel.load(tmp_path / "m.safetensors")


@pytest.mark.parametrize("change", ["shape", "missing", "more", "clients"])
def test_tensors_that_do_not_fit_the_description(tmp_path: Path, change: str) -> None:
    params = NETWORK.initial(0, 2 if change == "clients" else 1)
    if change == "shape":
        params["readout.bias"] = torch.zeros(1, 1, 7)
    elif change == "missing":
        del params["readout.bias"]
    elif change == "more":
        params["other"] = torch.zeros(1)
    save_file(params, tmp_path / "m.safetensors", {"fedgkd": json.dumps(GOOD)})
    with pytest.raises(RunError, match="the tensors do not fit the model that the file describes"):
        PersonalModel.load(tmp_path / "m.safetensors")


def test_every_byte_is_checked(tmp_path: Path) -> None:
    path = whole(tmp_path)
    data = path.read_bytes()
    for position in range(len(data)):
        for change in (0x01, 0x20, 0xFF):
            path.write_bytes(data[:position] + bytes([data[position] ^ change]) + data[position + 1 :])
            with pytest.raises(RunError, match=r"(is not a model file of fedgkd, or is damaged|has the format)"):
                PersonalModel.load(path)
    path.write_bytes(data)
    assert has_digest(path)
    PersonalModel.load(path)


def test_a_file_is_the_same_whenever_it_is_written(tmp_path: Path) -> None:
    first = whole(tmp_path).read_bytes()
    assert whole(tmp_path).read_bytes() == first


def test_files_of_earlier_versions_are_read_unchecked(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file(NETWORK.initial(0, 1), path, {"fedgkd": json.dumps(GOOD)})
    assert PersonalModel.load(path).model == NETWORK
    assert not has_digest(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_neither_read_nor_written(tmp_path: Path, value: float) -> None:
    params = NETWORK.initial(0, 1)
    params["readout.bias"][0, 0] = value
    path = tmp_path / "m.safetensors"
    with pytest.raises(RunError, match=r"is not written: some of its weights are not finite; try a lower lr"):
        PersonalModel(NETWORK, params).save(path)
    assert not path.exists()
    save_file(params, path, {"fedgkd": json.dumps(GOOD)})
    with pytest.raises(RunError, match="some of the model's weights are not finite"):
        PersonalModel.load(path)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(RunError) as caught:
        PersonalModel.load(tmp_path / "none.safetensors")
    assert str(caught.value) == f"cannot read the model {tmp_path / 'none.safetensors'}: No such file or directory"
    with pytest.raises(RunError, match="Is a directory"):
        PersonalModel.load(tmp_path)


def test_saving_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot write .*m.safetensors: "):
        personal().save(tmp_path / "file" / "m.safetensors")


@contextmanager
def small_disk(size: int) -> Iterator[None]:
    """No file may grow beyond that many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = whole(tmp_path)
    before = path.read_bytes()
    with small_disk(100), pytest.raises(RunError, match=r"cannot write .*m.safetensors: File too large"):
        PersonalModel(NETWORK, NETWORK.initial(9, 1)).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
