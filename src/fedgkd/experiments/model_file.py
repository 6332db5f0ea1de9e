"""A personal model as one safetensors file that knows what it was trained for, and predictions with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save

from fedgkd.atomic import atomic_write
from fedgkd.clients import GraphBatch, Tensors
from fedgkd.data.graph import Graph
from fedgkd.errors import DataError, RunError, SettingError, quoted
from fedgkd.models import MODELS, Model

_FORMAT = "fedgkd-model-1"


@dataclass(frozen=True)
class PersonalModel:
    """One client's model: weights ``(1, …)``, the model that they belong to, and names for people."""

    model: Model
    params: Tensors
    class_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    origin: Mapping[str, Any] | None = None

    def save(self, path: Path) -> None:
        description = {
            "format": _FORMAT,
            "model": {"kind": type(self.model).__name__, **asdict(cast(Any, self.model))},
            "class_names": self.class_names,
            "feature_names": self.feature_names,
            "origin": dict(self.origin or {}),
        }
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.params.items()}
        data = save(tensors, metadata={"fedgkd": json.dumps(description)})
        with atomic_write(path, RunError) as temporary:
            temporary.write_bytes(data)

    @classmethod
    def load(cls, path: Path) -> PersonalModel:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise RunError(f"cannot read the model {path}: {error.strerror or error}") from error
        try:
            params = load(data)
            description = json.loads(_header(data)["__metadata__"]["fedgkd"])
            if description["format"] != _FORMAT:
                raise RunError(f"{path} has the format {description['format']}; this version reads {_FORMAT} only")
            fields = description["model"]
            model = MODELS[fields.pop("kind")](**fields)
            expected = {name: (1, *parameter.shape) for name, parameter in model.parameters.items()}
            names = _names(description["class_names"]), _names(description["feature_names"])
            personal = cls(model, params, *names, description["origin"])
        except (SafetensorError, SettingError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise RunError(f"{path} is not a model file of fedgkd, or is damaged") from error
        if {name: tuple(tensor.shape) for name, tensor in params.items()} != expected:
            raise RunError(f"{path}: the tensors do not fit the model that the file describes")
        return personal

    @torch.no_grad()
    def probabilities(self, graph: Graph) -> NDArray[np.float32]:
        """Class probabilities of every node, ``(nodes, classes)``.

        Raises:
            DataError: If the graph's features are not those that the model was trained on.
        """
        self._check(graph)
        batch = GraphBatch([graph])
        logits = self.model(self.params, batch)
        result: NDArray[np.float32] = logits[0].softmax(dim=-1).numpy()
        return result

    def _check(self, graph: Graph) -> None:
        if graph.num_features != self.model.num_features:
            raise DataError(
                f"{graph.name} has {graph.num_features} feature columns, "
                f"but the model was trained on {self.model.num_features}"
            )
        if self.feature_names and graph.feature_names and self.feature_names != graph.feature_names:
            pairs = zip(graph.feature_names, self.feature_names, strict=True)
            column, (theirs, ours) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
            raise DataError(
                f"{graph.name}: feature column {column} is {quoted(theirs)}, but the model knows it as {quoted(ours)}"
            )


def _header(data: bytes) -> Any:
    """The JSON before the tensors of a safetensors file, which its library reads only from a path."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length])


def _names(values: list[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)
