"""The paper's motivating experiment: one graph, two labellings.

A GCN is trained on a graph and on the same graph with its labels flipped, :math:`y \\to C + 1 - y`. The two tasks could
hardly differ more, but the graph convolutions learn much the same: the embeddings of the nodes look alike. The task
features distilled from the two models, which know the readout too, should tell them apart.

Alike is measured by linear CKA (Kornblith et al., ICML 2019), which does not see rotation or scale: 1 for embeddings
that are equal up to those, 0 for unrelated ones. Apart is measured by the paper's relation r, the mean correlation of
columns. Each figure stands beside that of two trainings of the same task, which differ only in the noise of training:
as in a federation, all start from the same weights.

CKA and r are different measures, so there are two controls: r of the embeddings of the nodes themselves, and the cosine
of FED-PUB's embeddings, by which that algorithm relates clients. Neither forgives a rotation. If they are low as well,
it is the measure that tells the tasks apart, not the distillation.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedgkd.atomic import atomic_write, atomic_write_text
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.collaboration import correlation, cosine
from fedgkd.data.federation import Federation
from fedgkd.data.graph import Graph
from fedgkd.data.own import open_graph
from fedgkd.data.splits import random_split
from fedgkd.distillation import TASK_FEATURES, distil, proxy_embedding
from fedgkd.errors import RunError
from fedgkd.experiments.config import Config
from fedgkd.experiments.grid import COORDINATES, IMMATERIAL, Cell, Given, Method, claimed, make_cells, partitioned
from fedgkd.experiments.records import Record
from fedgkd.experiments.runner import Events, Run
from fedgkd.experiments.workers import FINISHED, ROUND, STARTED, News, Report
from fedgkd.models import Network
from fedgkd.parsing import read_json

Array = NDArray[np.float64]

JSON_FILE = "motivation.json"

TASKS = ("original", "repeated", "flipped")
"""The labels as they are, the same trained with other noise, and the labels flipped."""


@dataclass(frozen=True)
class Findings:
    """What one seed shows; ``same`` compares original and repeated, ``flipped`` original and flipped.

    Attributes:
        result: Of the training, as of any run.
        accuracy: Test accuracy of every task's model.
        cka: Linear CKA of the embeddings of all nodes.
        relation: The relation r by kind of task feature.
        controls: Measures of embeddings that see rotation, as r does.
        coordinates: First two principal components of the embeddings by task.
    """

    result: Record
    accuracy: dict[str, float]
    cka: dict[str, float]
    relation: dict[str, dict[str, float]]
    controls: dict[str, dict[str, float]]
    coordinates: dict[str, Array]


def examine(graph: Graph, training: Config, distillation: Config, events: Events | None = None) -> Findings:
    """Train the tasks side by side and compare what comes of them.

    Args:
        graph: The whole graph.
        training: How the models are trained: a configuration of ``local``, whose clients never exchange anything.
        distillation: A configuration of ``fedgkd`` for the task features.
    """
    run = Run(training, two_labellings(graph, training), None, events)
    run.start()
    result = run.execute()
    network = training.network(graph.num_features, graph.num_classes)
    made = run.engine.collect(lambda batch: _made_by_models(batch, network, distillation.method))
    embeddings = made["h"].double().cpu().numpy()
    coordinates = [principal_components(points) for points in embeddings]
    return Findings(
        result=result,
        accuracy=dict(zip(TASKS, result["per_client"], strict=True)),
        cka=_pairs(np.array([[linear_cka(a, b) for b in embeddings] for a in embeddings])),
        relation={kind: _pairs(correlation(made[f"distilled {kind}"])) for kind in TASK_FEATURES},
        controls={
            "embedding_relation": _pairs(correlation(made["h"])),
            "fedpub_cosine": _pairs(cosine(made["fedpub"])),
        },
        coordinates={task: facing(coordinates[k], coordinates[0]) for k, task in enumerate(TASKS)},
    )


def _made_by_models(batch: ClientBatch, network: Network, settings: Any) -> Tensors:
    """Of every task's model: embeddings of the nodes, FED-PUB's embedding, and each kind of distilled task feature."""
    with torch.no_grad():
        h = network.embed(batch.kept, batch.graph)
    distilled = {
        f"distilled {kind}": distil(batch, network, batch.kept, replace(settings, task_feature=kind))
        for kind in TASK_FEATURES
    }
    return {"h": h, "fedpub": proxy_embedding(batch, network, batch.kept), **distilled}


def two_labellings(graph: Graph, config: Config) -> Federation:
    """A "federation" whose clients hold the whole graph each, one for every task."""
    whole = random_split(graph, config.run.seed, config.run.ratios)
    flipped = replace(whole, y=np.where(whole.y >= 0, whole.num_classes - 1 - whole.y, whole.y), class_names=None)
    plain = replace(whole, class_names=None)
    return Federation((plain, plain, flipped), whole.name, "two labellings", config.run.seed, names=TASKS)


def linear_cka(a: Array, b: Array) -> float:
    r""":math:`\lVert B^\top A\rVert^2 / (\lVert A^\top A\rVert\,\lVert B^\top B\rVert)` of centred columns."""
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    return float(np.sum((b.T @ a) ** 2) / (np.linalg.norm(a.T @ a) * np.linalg.norm(b.T @ b)))


def principal_components(h: Array, number: int = 2) -> Array:
    """Coordinates of the rows along the directions of largest variance."""
    centred = h - h.mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    return np.asarray(u[:, :number] * s[:number])


def facing(points: Array, others: Array) -> Array:
    """A principal component has no sign: turn each the way of the others', so that pictures can be compared."""
    return np.asarray(points * np.where((points * others).sum(axis=0) < 0, -1.0, 1.0))


def _pairs(matrix: Array | Tensor) -> dict[str, float]:
    return {"same": float(matrix[0, TASKS.index("repeated")]), "flipped": float(matrix[0, TASKS.index("flipped")])}


def study(
    dataset: str, seeds: int, given: Given, out: Path, data_dir: Path | None, command: str, report: Report
) -> dict[str, Any]:
    """Examine a dataset with every seed; a study that is finished already is read.

    Writes ``motivation.json`` with the figures of every seed and ``motivation.npz`` with the first one's coordinates.

    Raises:
        RunError: If ``out`` holds something else.
    """
    source = partitioned(dataset, 1, "non-overlapping")
    place = replace(source, clients=len(TASKS), setting="two-labellings")
    cells = make_cells(out, [place], [Method("local"), Method("fedgkd")], range(seeds), given)
    trainings, distillations = cells[::2], cells[1::2]
    facts = {
        "dataset": place.dataset,
        "seeds": list(range(seeds)),
        "settings": _settings(trainings[0], distillations[0]),
    }
    with claimed(out, "motivation", command):
        if (out / JSON_FILE).exists():
            return _read(out / JSON_FILE, facts)
        settings = trainings[0].config.run
        graph = open_graph(settings.dataset, data_dir, label=settings.label, **settings.synthetic_options)
        findings = [_attend(graph, *pair, report) for pair in zip(trainings, distillations, strict=True)]
        return _write(out, facts, findings, graph)


def _attend(graph: Graph, training: Cell, distillation: Cell, report: Report) -> Findings:
    report(News(training, STARTED))
    events = Events(lambda record: report(News(training, ROUND, record)))
    found = examine(graph, training.config, distillation.config, events)
    report(News(training, FINISHED, found.result))
    return found


def _settings(*cells: Cell) -> dict[str, Any]:
    values = {name: value for cell in cells for name, value in cell.config.values().items()}
    return {name: value for name, value in values.items() if name not in (*COORDINATES, *IMMATERIAL)}


def _read(file: Path, facts: dict[str, Any]) -> dict[str, Any]:
    record = read_json(file, RunError, "remove it to repeat the study", " cannot be read: it")
    if any(record.get(name) != value for name, value in facts.items()):
        raise RunError(f"{file} is of another dataset, other seeds or settings; choose another --out")
    return record


def _write(out: Path, facts: dict[str, Any], findings: Sequence[Findings], graph: Graph) -> dict[str, Any]:
    record = {
        "study": "motivation",
        **facts,
        "accuracy": {task: [found.accuracy[task] for found in findings] for task in TASKS},
        "embedding_similarity": {"measure": "linear CKA"} | _by_pair([found.cka for found in findings]),
        "relation": {kind: _by_pair([found.relation[kind] for found in findings]) for kind in TASK_FEATURES},
        "controls": {name: _by_pair([found.controls[name] for found in findings]) for name in findings[0].controls},
    }
    pictures: dict[str, Any] = {task: findings[0].coordinates[task].astype(np.float32) for task in TASKS}
    with atomic_write(out / "motivation.npz", RunError) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, labels=graph.y, **pictures)
    atomic_write_text(out / JSON_FILE, json.dumps(record, indent=2, allow_nan=False) + "\n", RunError)
    return record


def _by_pair(figures: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    return {pair: [found[pair] for found in figures] for pair in ("same", "flipped")}
