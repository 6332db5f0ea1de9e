"""The paper's motivating study, read back from disk: embeddings look alike where distilled task features do not."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedgkd.errors import RunError

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
    file = folder / "motivation.json"
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
        with np.load(folder / "motivation.npz") as arrays:
            pictures = {task: np.asarray(arrays[task], np.float64) for task in ("original", "flipped")}
            labels = np.asarray(arrays["labels"], np.int64)
        return Motivation(
            name,
            str(facts.get("dataset", name)),
            _by_pair(facts["embedding_similarity"]),
            {kind: _by_pair(figures) for kind, figures in facts["relation"].items()},
            {CONTROLS[name]: _by_pair(figures) for name, figures in facts["controls"].items()},
            pictures,
            labels,
        )
    except json.JSONDecodeError as error:
        raise RunError(f"{file}, line {error.lineno}, is not JSON ({error.msg}); repeat the study") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise RunError(f"the motivating study in {folder} cannot be read ({error}); repeat it") from error


def _by_pair(figures: dict[str, Any]) -> dict[str, list[float]]:
    return {pair: [float(value) for value in figures[pair]] for pair in PAIRS}
