"""What is written down of a round and of a run."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedgkd._version import __version__
from fedgkd.algorithms import Algorithm
from fedgkd.collaboration import Mixing, effective_donors
from fedgkd.data.federation import Federation
from fedgkd.data.statistics import label_counts
from fedgkd.experiments.config import Config
from fedgkd.experiments.scores import MODELS, Best, Scoreboard
from fedgkd.experiments.selection import SELECT
from fedgkd.training.evaluation import SPLITS, TEST, VAL

Record = dict[str, Any]

_LARGEST = float(np.finfo(np.float32).max)


def scores_record(scores: Scoreboard) -> Record:
    """Loss, accuracy and macro-F1 of every model and split: means over clients and nodes, and each client's own."""
    splits = list(enumerate(SPLITS))
    record: Record = {"loss": scores.mean_loss, "loss_per_client": scores.loss}
    for model in MODELS:
        record[model] = {
            "accuracy": {split: scores.mean(model, k) for k, split in splits},
            "accuracy_weighted": {split: scores.weighted_mean(model, k) for k, split in splits},
            "macro_f1": {split: scores.mean_macro_f1(model, k) for k, split in splits},
            "per_client": {split: scores.accuracy[model][:, k] for k, split in splits},
            "macro_f1_per_client": {split: scores.macro_f1[model][:, k] for k, split in splits},
        }
    return record


def figures(scores: Scoreboard, model: str) -> Record:
    """The figures by which a round of a run is reported."""
    return {
        "test_accuracy": scores.mean(model, TEST),
        "val_accuracy": scores.mean(model, VAL),
        "test_accuracy_weighted": scores.weighted_mean(model, TEST),
        "test_macro_f1": scores.mean_macro_f1(model, TEST),
        "per_client": scores.accuracy[model][:, TEST].tolist(),
    }


def round_record(
    round_: int,
    cohort: Sequence[int],
    present: Sequence[int],
    scores: Scoreboard,
    best_round: int,
    moved: tuple[int, int],
    mixing: Mixing | None,
) -> Record:
    """What is written down of a round; ``moved`` are the bytes per client, up and down."""
    return {
        "round": round_,
        "present": list(cohort),
        "left_out": sorted(set(cohort) - set(present)),
        **scores_record(scores),
        "best_round": best_round,
        "bytes_up": moved[0],
        "bytes_down": moved[1],
        "relation_quality": None,
        "relation_auc": None,
        "own_share": None if mixing is None else float(mixing.weights.diagonal().mean()),
        "effective_donors": None if mixing is None else effective_donors(mixing.weights),
        **(mixing.facts if mixing else {}),
    }


def result_record(
    config: Config,
    algorithm: Algorithm,
    names: Sequence[str],
    rounds: int,
    scores: Scoreboard,
    best: Best,
    best_received: Best,
    totals: Mapping[str, float],
    *,
    dataset: str,
    setting: str,
    partition_hash: str | None,
) -> Record:
    """The figures of a run; the headline is the mean test accuracy at the best validation round."""
    sizes = algorithm.model.sizes
    return {
        "algorithm": config.run.algorithm,
        "dataset": dataset,
        "clients": len(names),
        "setting": setting,
        "seed": config.run.seed,
        "scored_model": SELECT[config.run.select],
        "rounds": rounds,
        "best_round": best.round,
        **best.figures,
        "test_accuracy_received": best_received.figures.get("test_accuracy"),
        "best_round_received": best_received.round,
        "test_accuracy_last": scores.mean("selected", TEST),
        "chosen_by_validation": best.val >= 0,
        "clients_never_present": scores.clients_never_present,
        "clients_without_val_nodes": scores.clients_without(VAL),
        "clients_without_test_nodes": scores.clients_without(TEST),
        "client_names": list(names),
        "parameters": sum(sizes.values()),
        "parameters_shared": sum(sizes[name] for name in algorithm.shared),
        "local_epochs": config.method.local_epochs,
        "epochs_before_round_1": algorithm.start_epochs,
        **totals,
        "partition_hash": partition_hash,
        "versions": versions(),
    }


def clients_record(federation: Federation) -> Record:
    """Who the clients are: names, nodes per split, and how many nodes of each class they have."""
    graphs = federation.graphs
    return {
        "names": federation.names,
        "class_names": graphs[0].class_names,
        "nodes": [graph.num_nodes for graph in graphs],
        **{split: [int(np.count_nonzero(getattr(graph, f"{split}_mask"))) for graph in graphs] for split in SPLITS},
        "labels": label_counts(federation),
    }


def relation_matrices(mixing: Mixing | None, present: Sequence[int], clients: int) -> NDArray[np.float32]:
    """R, S and Q over all clients; NaN where a client took no part or the algorithm has no such matrix."""
    full = np.full((3, clients, clients), np.nan, np.float32)
    if mixing is not None:
        block = np.ix_(list(present), list(present))
        for whole, matrix in zip(full, (mixing.relation, mixing.kernel, mixing.weights), strict=True):
            if matrix is not None:
                whole[block] = np.clip(matrix.cpu().numpy(), -_LARGEST, _LARGEST)
    return full


def versions() -> dict[str, str]:
    return {
        "fedgkd": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
