"""Runs in OpenFGL's own environment: rounds of its FedAvg over clients that it is handed, one whenever asked.

Nothing of OpenFGL is changed; only its dataset, which would be downloaded and partitioned anew, is replaced by the
graphs in a folder, so that it trains the very clients that the others train. A round is ``FGLTrainer.train`` with one
round: send, local training, aggregation, evaluation of every client. What it prints goes nowhere.

Arguments: the folder, the number of threads, the local epochs, the hidden width. Every line on standard input is
answered by one line: the seconds that a round took.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data


def load(file: Path) -> Data:
    with np.load(file) as stored:
        data = Data(**{name: torch.from_numpy(stored[name]) for name in ("x", "edge_index", "y")})
        data.num_global_classes = int(stored["num_classes"])
        data.global_map = dict(enumerate(stored["node_ids"].tolist()))
    return data


def make_trainer(folder: Path, epochs: int, hidden: int) -> Any:
    from openfgl.config import args  # type: ignore[import-not-found]
    from openfgl.flcore import trainer  # type: ignore[import-not-found]

    clients = [load(folder / f"client-{i}.npz") for i in range(len(list(folder.glob("client-*.npz"))))]
    graphs = SimpleNamespace(local_data=clients, global_data=load(folder / "whole.npz"), processed_dir=str(folder))
    trainer.FGLDataset = lambda args: graphs
    chosen = {
        "use_cuda": False,
        "dataset": ["Cora"],  # a name it knows; the graphs are those of the folder
        "num_clients": len(clients),
        "num_rounds": 1,
        "num_epochs": epochs,
        "simulation_mode": "subgraph_fl_metis",
        "fl_algorithm": "fedavg",
        "train_val_test": "0.3-0.35-0.35",
        "model": ["gcn"],
        "hid_dim": hidden,
        "weight_decay": 1e-6,
        "metrics": ["accuracy"],
    }
    for name, value in chosen.items():
        setattr(args, name, value)
    return trainer.FGLTrainer(args)


def main(folder: str, threads: str, epochs: str, hidden: str) -> None:
    torch.set_num_threads(int(threads))
    answers = sys.stdout
    with contextlib.redirect_stdout(io.StringIO()) as chatter:
        trainer = make_trainer(Path(folder), int(epochs), int(hidden))
        print("ready", file=answers, flush=True)
        for _ in sys.stdin:
            start = time.perf_counter()
            trainer.train()
            print(time.perf_counter() - start, file=answers, flush=True)
            chatter.truncate(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
