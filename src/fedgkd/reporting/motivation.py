"""The paper's motivating study, read back from disk: embeddings look alike where distilled task features do not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgkd.data.npz import open_arrays
from fedgkd.errors import DataError, RunError
from fedgkd.fields import Kind, by_name, listed, number, text
from fedgkd.parsing import read_json

PAIRS = ("same", "flipped")
"""One task trained twice, and the task beside the one with its labels flipped."""

CONTROLS = {
    "embedding_relation": "embeddings: relation r",
    "fedpub_cosine": "FED-PUB's embeddings: cosine",
}
"""What they are called in print."""


@dataclass(frozen=True)
class Motivation:
    """What the study found.

    Attributes:
        name: Its folder.
        dataset: The graph.
        similarity: Linear CKA of the embeddings, by pair, one number per seed.
        relations: The relation by kind of task feature and pair, one number per seed.
        controls: Measures of the embeddings that, like the relation, see a rotation; by name and pair.
        pictures: Two principal components of the nodes' embeddings, trained on the original and on the flipped labels.
        labels: The original labels.
    """

    name: str
    dataset: str
    similarity: dict[str, list[float]]
    relations: dict[str, dict[str, list[float]]]
    controls: dict[str, dict[str, list[float]]]
    pictures: dict[str, NDArray[np.float64]]
    labels: NDArray[np.int64]


def read_motivation(folder: Path, name: str) -> Motivation:
    """Read ``motivation.json`` and ``motivation.npz``.

    Raises:
        RunError: If either is missing or damaged.
    """
    file, remedy = folder / "motivation.json", "repeat the study"
    facts = read_json(file, RunError, remedy)
    if not all(kind(facts.get(name)) for name, kind in _KINDS.items()):
        raise RunError(f"{file} cannot be read (it has not a number per pair and seed of every measure); {remedy}")
    seeds = {len(values) for figures in _figures(facts) for values in (figures[pair] for pair in PAIRS)}
    if len(seeds) != 1 or seeds == {0}:
        raise RunError(f"{file} cannot be read (it has not the same number of seeds for every measure); {remedy}")
    try:
        with open_arrays(folder / "motivation.npz") as arrays:
            pictures = {task: _points(arrays[task]) for task in ("original", "flipped")}
            labels = np.asarray(arrays["labels"], np.int64)
    except (DataError, ValueError) as error:
        raise RunError(f"the motivating study in {folder} cannot be read ({error}); {remedy}") from error
    if any(points.shape != (len(labels), 2) for points in pictures.values()) or labels.ndim != 1:
        raise RunError(f"{folder / 'motivation.npz'} has not one point and one label for every node; {remedy}")
    relations, controls = facts["relation"], facts["controls"]
    return Motivation(
        name,
        facts["dataset"] if text(facts.get("dataset")) else name,
        _by_pair(facts["embedding_similarity"]),
        {kind: _by_pair(figures) for kind, figures in relations.items()},
        {CONTROLS[name]: _by_pair(figures) for name, figures in controls.items()},
        pictures,
        labels,
    )


def _is_by_pair(value: Any) -> bool:
    return isinstance(value, dict) and all(listed(number())(value.get(pair)) for pair in PAIRS)


_KINDS: dict[str, Kind] = {
    "embedding_similarity": _is_by_pair,
    "relation": by_name(_is_by_pair),
    "controls": lambda value: by_name(_is_by_pair)(value) and value.keys() <= CONTROLS.keys(),
}


def _figures(facts: dict[str, Any]) -> list[dict[str, Any]]:
    return [facts["embedding_similarity"], *facts["relation"].values(), *facts["controls"].values()]


def _points(array: NDArray[Any]) -> NDArray[np.float64]:
    if array.dtype.kind != "f" or not np.isfinite(array).all():
        raise ValueError("a picture has points that are not finite numbers")
    return array.astype(np.float64)


def _by_pair(figures: dict[str, Any]) -> dict[str, list[float]]:
    return {pair: [float(value) for value in figures[pair]] for pair in PAIRS}
