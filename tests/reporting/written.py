"""Run folders written by hand, in the form that ``fedgkd run`` leaves them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedgkd.experiments.selection import SELECT

SETTINGS = {
    "dataset": "cora",
    "graphs": "none",
    "label": "label",
    "synthetic": "",
    "partition": "non-overlapping",
    "train_ratio": 0.30,
    "val_ratio": 0.35,
    "test_ratio": 0.35,
    "patience": 20,
    "select": "trained",
    "threads": 1,
    "lr": 0.01,
}


def write_run(
    folder: Path,
    algorithm: str = "fedgkd",
    seed: int = 0,
    per_client: Sequence[float | None] = (0.9, 0.8, 0.7),
    *,
    rounds: int = 4,
    best_round: int = 3,
    max_rounds: int = 10,
    setting: str = "non-overlapping",
    relations: Sequence[str] = (),
    labels: Sequence[Sequence[int]] | None = None,
    version: str = "0.1.0",
    result: dict[str, Any] | None = None,
    **settings: Any,
) -> Path:
    """A finished run; its rounds rise to the accuracy of the last one in steps of one percent."""
    clients = len(per_client)
    known = [accuracy for accuracy in per_client if accuracy is not None]
    accuracy = sum(known) / len(known)
    values = {**SETTINGS, "algorithm": algorithm, "clients": clients, "seed": seed, "partition": setting, **settings}
    values["rounds"] = max_rounds
    folder.mkdir(parents=True)
    toml = "".join(f"{name} = {json.dumps(value)}  # what it means\n" for name, value in values.items())
    (folder / "config.toml").write_text(toml)
    figures = {
        "algorithm": algorithm,
        "dataset": Path(str(values["dataset"])).name,
        "clients": clients,
        "setting": setting,
        "seed": seed,
        "scored_model": SELECT[values["select"]],
        "rounds": rounds,
        "best_round": best_round,
        "test_accuracy": accuracy,
        "val_accuracy": accuracy - 0.01,
        "test_accuracy_weighted": accuracy + 0.001,
        "test_macro_f1": accuracy / 2,
        "per_client": list(per_client),
        "test_accuracy_received": accuracy - 0.05,
        "best_round_received": rounds,
        "test_accuracy_last": accuracy - 0.002,
        "client_names": [f"client-{client}" for client in range(clients)],
        "bytes_up": 2_000_000 * rounds * clients,
        "bytes_down": 1_000_000 * rounds * clients,
        "bytes_features": 160 * rounds * clients,
        "seconds": 0.5 * rounds,
        "partition_hash": f"{values['dataset']} {setting} {clients} {seed}",
        "versions": {"fedgkd": version, "torch": "2.6"},
        **(result or {}),
    }
    records = [
        _round(number, max(0.1, accuracy - 0.01 * (rounds - number)), clients, "R" in relations)
        for number in range(1, rounds + 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    if relations:
        np.savez_compressed(folder / "relations.npz", **write_matrices(rounds, clients, relations))
    if labels is not None:
        facts = {"names": figures["client_names"], "class_names": None, "nodes": [sum(row) for row in labels]}
        (folder / "clients.json").write_text(json.dumps({**facts, "labels": labels}))
    (folder / "result.json").write_text(json.dumps(figures, indent=2))
    return folder


def write_matrices(rounds: int, clients: int, names: Sequence[str]) -> dict[str, Any]:
    """R, S and Q that differ from round to round; those not asked for are not there (NaN)."""
    draw = np.random.default_rng(0)
    matrices = {}
    for name in ("R", "S", "Q"):
        values = draw.random((rounds, clients, clients)).astype(np.float32)
        symmetric = (values + values.transpose(0, 2, 1)) / 2
        symmetric[:, np.arange(clients), np.arange(clients)] = 1
        normed = symmetric / symmetric.sum(axis=2, keepdims=True) if name == "Q" else symmetric
        matrices[name] = normed if name in names else np.full_like(normed, np.nan)
    return matrices


def write_study(folder: Path, setting: str, values: Sequence[Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.json").write_text(json.dumps({"study": setting, "setting": setting, "values": list(values)}))


def write_motivation(folder: Path, nodes: int = 20) -> None:
    folder.mkdir(parents=True)
    relation = {kind: {"same": [0.9, 0.8], "flipped": [0.1, 0.3]} for kind in ("x_h", "y")}
    controls = {name: {"same": [0.8, 1.0], "flipped": [0.2, 0.4]} for name in ("embedding_relation", "fedpub_cosine")}
    facts = {"study": "motivation", "dataset": "cora", "accuracy": {}, "relation": relation, "controls": controls}
    similarity = {"measure": "linear CKA", "same": [0.97, 0.99], "flipped": [0.9, 0.94]}
    (folder / "motivation.json").write_text(json.dumps({**facts, "embedding_similarity": similarity}))
    draw = np.random.default_rng(0)
    pictures = {task: draw.normal(size=(nodes, 2)) for task in ("original", "repeated", "flipped")}
    np.savez_compressed(folder / "motivation.npz", labels=np.arange(nodes) % 3, **pictures)


def write_comparison(folder: Path, algorithms: Sequence[str] = ("local", "fedavg", "fedgkd"), seeds: int = 3) -> None:
    """Methods of which each is better than the one before, on three clients of which two have the same labels."""
    for step, algorithm in enumerate(algorithms):
        for seed in range(seeds):
            accuracies = [0.60 + 0.05 * step + 0.01 * seed + 0.1 * client for client in range(3)]
            relations = "RSQ" if algorithm == "fedgkd" else ""
            labels = [[9, 1], [1, 9], [8, 2]]
            write_run(folder / f"{algorithm}-{seed}", algorithm, seed, accuracies, relations=relations, labels=labels)


def _round(number: int, accuracy: float, clients: int, related: bool) -> dict[str, Any]:
    scores = {
        "accuracy": {"train": accuracy + 0.02, "val": accuracy - 0.01, "test": accuracy},
        "accuracy_weighted": {"train": accuracy, "val": accuracy, "test": accuracy},
        "macro_f1": {"train": accuracy, "val": accuracy, "test": accuracy / 2},
    }
    return {
        "round": number,
        "present": list(range(clients)),
        "loss": 1 / number,
        "trained": scores,
        "received": scores,
        "selected": scores,
        "bytes_up": 2_000_000,
        "bytes_down": 1_000_000,
        "relation_quality": 0.1 * number if related and number > 1 else None,
        "seconds": {"total": 0.5},
    }


def write_relation_study(folder: Path) -> None:
    """Quality is a tenth of the round; two seeds of the default, one of the others, of which one is of old."""
    folder.mkdir()
    variants = {"fedgkd": "default", "fedgkd-relation=centred": "centred"}
    facts = {"study": "relation", "setting": "variant", "values": ["default", "centred"], "variants": variants}
    (folder / "study.json").write_text(json.dumps(facts))
    place, related = "cora-3-non-overlapping", {"relations": "R", "rounds": 40}
    write_run(folder / f"{place}-fedgkd-seed0", per_client=[0.8] * 3, **related)
    write_run(folder / f"{place}-fedgkd-seed1", per_client=[0.7] * 3, seed=1, **related)
    write_run(folder / f"{place}-fedgkd-relation=centred-seed0", relation="centred", relations="R", rounds=10)
    write_run(folder / f"{place}-fedgkd-gamma=7-seed0", gamma=7, rounds=4)
    write_run(folder / f"{place}-fedpub-seed0", "fedpub", rounds=40)
