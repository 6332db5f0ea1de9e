"""Model files: damaged, and well-formed but wrong, with the digest that belongs to them."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fedgkd.experiments.model_file import PersonalModel
from fedgkd.models import MODELS, MaskedNetwork, MendedNetwork, Network, TwoChannel
from tests.fuzz.core import Target, command
from tests.fuzz.tables import write_tables
from tests.fuzz.values import change_tree, extreme, to_json

FEATURES, CLASSES = 2, 3
GRAPH = {
    "nodes.csv": [["id", "f", "g", "label"], *([f"n{i}", f"{i / 3}", "1", "abc"[i % 3]] for i in range(5))],
    "edges.csv": [["s", "t"], ["n0", "n1"], ["n1", "n2"], ["n3", "n4"]],
    "newline": "\n",
    "encoding": "utf-8",
    "delimiter": ",",
    "quotes": False,
    "raw": [],
}  # fmt: skip
SIZES = {"F32": 4, "F64": 8, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "BOOL": 1, "U8": 1}


def _networks() -> list[Any]:
    plain = [Network(backbone, FEATURES, 4, 2, CLASSES) for backbone in ("gcn", "sage", "gat", "gin")]
    return [*plain, MaskedNetwork.of(plain[0]), TwoChannel.of(plain[0], 4, 4), _mended(plain[0])]


def _mended(network: Network) -> Any:
    import dataclasses

    fields = {field.name for field in dataclasses.fields(MendedNetwork)}
    return MendedNetwork(**{name: value for name, value in asdict(network).items() if name in fields})


def change_description(draw: random.Random, content: dict[str, Any]) -> None:
    change_tree(draw, content["description"], raw=True)


def change_model(draw: random.Random, content: dict[str, Any]) -> None:
    fields = content["description"].get("model")
    if isinstance(fields, dict) and fields:
        name = draw.choice([*fields])
        sizes = [0, -1, 1, 10**8, 2**40, 1.0, True, "2", None, extreme(draw), draw.choice(list(fields.values()))]
        fields[name] = draw.choice([draw.choice(sizes), draw.choice(["gcn", "sage", "gat", "gin", *MODELS])])


def change_dtype(draw: random.Random, content: dict[str, Any]) -> None:
    """All weights, or some, in another precision, and with the bytes for it."""
    dtype = draw.choice(list(SIZES))
    for tensor in content["tensors"].values():
        if draw.random() < 0.7:
            kind = {"F32": "f4", "F64": "f8", "F16": "f2", "I64": "i8", "I32": "i4", "BOOL": "?", "U8": "u1"}.get(
                dtype, "f2"
            )
            with np.errstate(all="ignore"):
                tensor["array"] = tensor["array"].astype(kind)
            tensor["dtype"] = dtype


def change_value(draw: random.Random, content: dict[str, Any]) -> None:
    tensor = draw.choice(list(content["tensors"].values()) or [{"array": np.zeros(1)}])
    with np.errstate(all="ignore"):
        value = draw.choice([float("nan"), float("inf"), 3e38, -3e38, 1e-45, 0.0])
        array = tensor["array"].copy()
        if array.size and array.dtype.kind == "f":
            array.reshape(-1)[draw.randrange(array.size)] = value
        tensor["array"] = array if draw.random() < 0.5 or array.dtype.kind != "f" else np.full_like(array, value)


def change_tensor(draw: random.Random, content: dict[str, Any]) -> None:
    tensors = content["tensors"]
    if not tensors:
        return
    name = draw.choice(list(tensors))
    kind = draw.randrange(5)
    if kind == 0:
        del tensors[name]
    elif kind == 1:
        tensors[draw.choice(["other", "readout.bias", "", "x" * 300, "convs.9.weight"])] = tensors.pop(name)
    elif kind == 2:
        tensors[name]["array"] = tensors[name]["array"].reshape(-1)
    elif kind == 3:
        tensors[name]["array"] = np.concatenate([tensors[name]["array"]] * 2)
    else:
        tensors[name]["array"] = tensors[name]["array"][..., :0]


def change_header(draw: random.Random, content: dict[str, Any]) -> None:
    content["headers"].append(draw.randrange(2**32))


class Model(Target):
    """``fedgkd predict`` with a model file."""

    name = "model"
    mutators = (
        change_description,
        change_description,
        change_model,
        change_model,
        change_dtype,
        change_value,
        change_tensor,
    )
    mutators = (*mutators, change_header)

    def make(self, draw: random.Random) -> dict[str, Any]:
        network = draw.choice(_networks())
        tensors = {
            name: {"dtype": "F32", "array": tensor.numpy()}
            for name, tensor in network.initial(draw.randrange(99), 1).items()
        }
        description = {
            "format": "fedgkd-model-2" if draw.random() < 0.8 else "fedgkd-model-1",
            "model": {"kind": type(network).__name__, **asdict(network)},
            "class_names": draw.choice([None, ["a", "b", "c"]]),
            "feature_names": draw.choice([None, ["f", "g"]]),
            "origin": draw.choice([{}, {"algorithm": "fedgkd", "client": "client-0"}]),
        }
        return {"description": description, "tensors": tensors, "headers": []}

    def write(self, content: dict[str, Any], folder: Path) -> Path:
        write_tables(folder.parent / "graph", GRAPH)
        path = folder / "m.safetensors"
        description = content["description"]
        if isinstance(description, dict) and description.get("format") == "fedgkd-model-2":
            description["sha256"] = "0" * 64
        data = _safetensors(content, to_json(description))
        zeros = json.dumps(json.dumps({"sha256": "0" * 64})[1:-1])[1:-1].encode()
        digest = zeros.replace(b"0" * 64, hashlib.sha256(data).hexdigest().encode())
        path.write_bytes(data.replace(zeros, digest, 1))
        return path

    def use(self, given: Path) -> tuple[PersonalModel, str]:
        printed = command("predict", "--model", str(given), "--graph", str(given.parent.parent / "graph"))
        return PersonalModel.load(given), printed

    def wrong(self, given: Path, content: Any, result: tuple[PersonalModel, str]) -> str | None:
        model, printed = result
        data = given.read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        said = json.loads(header.pop("__metadata__")["fedgkd"])
        if said.get("format") not in ("fedgkd-model-1", "fedgkd-model-2"):
            return "another format"
        fields = {name: (value, type(value)) for name, value in asdict(model.model).items()}
        if fields | {"kind": (type(model.model).__name__, str)} != {k: (v, type(v)) for k, v in said["model"].items()}:
            missing = set(fields) - set(said["model"])
            if not missing or any(said["model"].get(k) != v for k, (v, _) in fields.items() if k not in missing):
                return "another model"
        if {part["dtype"] for part in header.values()} != {"F32"}:
            return "weights of another precision"
        if any(part["shape"][0] != 1 for part in header.values()):
            return "weights of several clients"
        for field, names, size in (
            ("class_names", model.class_names, model.model.num_classes),
            ("feature_names", model.feature_names, model.model.num_features),
        ):
            stated = said[field]
            if stated is None:
                if names is not None:
                    return f"{field} made up"
            elif (
                list(names or ()) != stated
                or len(stated) != size
                or len(set(stated)) != size
                or not all(isinstance(name, str) and name for name in stated)
            ):
                return f"{field} are not one name each"
        rows = printed.splitlines()
        if len(rows) != 6:
            return "not one row per node"
        for row in rows[1:]:
            shares = [float(share) for share in row.split(",")[2:]]
            if len(shares) != model.model.num_classes or not abs(sum(shares) - 1) < 0.01:
                return "probabilities that are none"
        return None


def _safetensors(content: dict[str, Any], description: str) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"fedgkd": description}}
    blob = b""
    for name, tensor in content["tensors"].items():
        raw = np.ascontiguousarray(tensor["array"]).tobytes()
        shape = list(tensor["array"].shape)
        header[name] = {"dtype": tensor["dtype"], "shape": shape, "data_offsets": [len(blob), len(blob) + len(raw)]}
        blob += raw
    for seed in content["headers"]:
        change_tree(random.Random(seed), header, raw=True)
    text = to_json(header).encode(errors="surrogatepass")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + blob
