"""A personal model as one safetensors file that knows what it was trained for, and predictions with it.

The file's own SHA-256 stands in its description: that of the file with zeros in the digest's place.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save

from fedgkd.atomic import atomic_write
from fedgkd.clients import GraphBatch, Tensors
from fedgkd.data.graph import Graph
from fedgkd.errors import DataError, RunError, SettingError, quoted, shortened
from fedgkd.models import MODELS, Model
from fedgkd.parsing import parse_json

_FORMAT = "fedgkd-model-2"
_UNCHECKED = "fedgkd-model-1"
"""What earlier versions wrote, without a digest."""

_LEAST = {"num_classes": 2, "threshold": 0.0, "walk_steps": 0, "max_degree": 0}
"""What the numbers that describe a model are at least, if not 1."""

_NO_DIGEST = "0" * 64
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class PersonalModel:
    """One client's model: weights ``(1, …)``, the model that they belong to, and names for people."""

    model: Model
    params: Tensors
    class_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    origin: Mapping[str, Any] | None = None

    @property
    def is_finite(self) -> bool:
        """Whether all weights are numbers; those of a training that diverged are not."""
        return all(bool(tensor.isfinite().all()) for tensor in self.params.values())

    def save(self, path: Path) -> None:
        """Write the model to a file.

        Raises:
            RunError: If its weights are not finite, or the file cannot be written.
        """
        if not self.is_finite:
            raise RunError(f"the model for {path} is not written: some of its weights are not finite; try a lower lr")
        description = {
            "format": _FORMAT,
            "sha256": _NO_DIGEST,
            "model": {"kind": type(self.model).__name__, **asdict(cast(Any, self.model))},
            "class_names": self.class_names,
            "feature_names": self.feature_names,
            "origin": dict(self.origin or {}),
        }
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.params.items()}
        data = save(tensors, metadata={"fedgkd": json.dumps(description)})
        data = _with_digest(data, _NO_DIGEST, hashlib.sha256(data).hexdigest())
        with atomic_write(path, RunError) as temporary:
            temporary.write_bytes(data)

    @classmethod
    def load(cls, path: Path) -> PersonalModel:
        """Read a model from a file.

        Raises:
            RunError: If it is no model file, or one of its bytes is not as it was written.
        """
        try:
            if path.is_fifo() or path.is_char_device():  # neither has an end
                raise RunError(f"cannot read the model {path}: it is not a file")
            data = path.read_bytes()
        except OSError as error:
            raise RunError(f"cannot read the model {path}: {error.strerror or error}") from error
        try:
            description = _description(data)
            if description["format"] not in (_FORMAT, _UNCHECKED):
                raise RunError(
                    f"{path} has the format {quoted(description['format'])}; "
                    f"this version reads {_FORMAT} and {_UNCHECKED} only"
                )
            if "sha256" in description or description["format"] == _FORMAT:
                _check_digest(data, description["sha256"])
            params = load(data)
            if not isinstance(description["model"], dict) or not isinstance(description["origin"], dict):
                raise ValueError
            model = _model(description["model"], len(params))
            expected = {name: ((1, *parameter.shape), torch.float32) for name, parameter in model.parameters.items()}
            class_names = _names(description["class_names"], model.num_classes)
            feature_names = _names(description["feature_names"], model.num_features)
            personal = cls(model, params, class_names, feature_names, description["origin"])
        except (SafetensorError, SettingError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise RunError(f"{path} is not a model file of fedgkd, or is damaged") from error
        if {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in params.items()} != expected:
            raise RunError(f"{path}: the tensors do not fit the model that the file describes")
        if not personal.is_finite:
            raise RunError(f"{path}: some of the model's weights are not finite; use the model of another round or run")
        return personal

    @torch.no_grad()
    def probabilities(self, graph: Graph) -> NDArray[np.float32]:
        """Class probabilities of every node, ``(nodes, classes)``.

        Raises:
            DataError: If the graph's features or classes are not those that the model was trained on, or if their
                values are so large that the model has no answer.
        """
        self._check(graph)
        batch = GraphBatch([graph])
        logits = self.model(self.params, batch)
        result: NDArray[np.float32] = logits[0].softmax(dim=-1).numpy()
        unknown = ~np.isfinite(result).all(axis=1)
        if unknown.any():
            raise DataError(
                f"{graph.name}: the model has no answer for node {int(unknown.argmax())}, "
                "whose features or weights are too large; scale the features as they were in training"
            )
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
        if self.class_names and graph.class_names and self.class_names != graph.class_names:
            raise DataError(
                f"{graph.name}: the classes are {shortened(', '.join(graph.class_names))}, but the model knows "
                f"{shortened(', '.join(self.class_names))}; give them in this order"
            )
        if graph.y.max(initial=0) >= self.model.num_classes:
            raise DataError(
                f"{graph.name}: node {int(graph.y.argmax())} has label {graph.y.max()}, "
                f"but the model knows the {self.model.num_classes} classes 0..{self.model.num_classes - 1}"
            )


def has_digest(path: Path) -> bool:
    """Whether a model file that can be loaded would not be if a byte of it had changed."""
    return bool(_description(path.read_bytes())["format"] == _FORMAT)


def _description(data: bytes) -> Any:
    """What stands about the model in the JSON before the tensors, which the library reads only from a path."""
    length = int.from_bytes(data[:8], "little")
    return parse_json(parse_json(data[8 : 8 + length])["__metadata__"]["fedgkd"])


def _check_digest(data: bytes, digest: str) -> None:
    """Raise a ValueError unless that is the digest of the file."""
    if not _DIGEST.fullmatch(digest) or data.count(_place(digest)) != 1:
        raise ValueError
    if hashlib.sha256(_with_digest(data, digest, _NO_DIGEST)).hexdigest() != digest:
        raise ValueError


def _with_digest(data: bytes, old: str, new: str) -> bytes:
    return data.replace(_place(old), _place(new), 1)


def _place(digest: str) -> bytes:
    """How the digest is written within a text of JSON that is a text of JSON itself."""
    return json.dumps(json.dumps({"sha256": digest})[1:-1])[1:-1].encode()


def _model(description: Mapping[str, Any], tensors: int) -> Model:
    """The model that a file describes; a ValueError, TypeError or LookupError if there is none such.

    Args:
        tensors: How many tensors the file holds; a model with more layers is not even made.
    """
    fields = dict(description)
    kind = MODELS[fields.pop("kind")]
    kinds = get_type_hints(kind)
    for name, value in fields.items():
        if type(value) is not kinds[name] or (not isinstance(value, str) and value < _LEAST.get(name, 1)):
            raise ValueError
    if fields["layers"] > tensors:
        raise ValueError
    return kind(**fields)


def _names(values: list[str] | None, size: int) -> tuple[str, ...] | None:
    """One name each, or none at all; a ValueError if they are anything else."""
    if values is None:
        return None
    if not isinstance(values, list) or len({name for name in values if isinstance(name, str) and name}) != size:
        raise ValueError
    if len(values) != size:
        raise ValueError
    return tuple(values)
