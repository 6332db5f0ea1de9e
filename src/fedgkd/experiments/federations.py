"""From a configuration to the federation that it names."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fedgkd.algorithms import Oracle
from fedgkd.data.federation import DATA_SETTINGS, Federation
from fedgkd.data.own import divide_dataset, read_federation
from fedgkd.data.unlike import with_concepts, with_few_labels
from fedgkd.experiments.config import Config, RunSettings


def federation_of(config: Config, data_dir: Path | None = None) -> Federation:
    """The federation of one run, without the graph that was partitioned, as large again, if nobody will look at it."""
    federation = build_federation(config.run, data_dir)
    return federation if issubclass(config.algorithm, Oracle) else replace(federation, whole=None)


def build_federation(settings: RunSettings, data_dir: Path | None = None) -> Federation:
    """The clients' graphs: own ones as they are, or a dataset split and then partitioned, all by the seed."""
    if settings.graphs is not None:
        folder = Path(settings.graphs)
        federation = read_federation(folder, label=settings.label, seed=settings.seed, ratios=settings.ratios)
    else:
        federation = divide_dataset(
            settings.dataset,
            settings.clients,
            settings.partition,
            settings.seed,
            ratios=settings.ratios,
            data_dir=data_dir,
            label=settings.label,
            **settings.synthetic_options,
        )
    return with_concepts(with_few_labels(federation, settings.train_per_client, settings.seed), settings.concepts)


def federation_settings(settings: RunSettings) -> RunSettings:
    """Those settings that decide the federation, the others as by default: equal ones, equal federation."""
    deciding = (*DATA_SETTINGS, "clients", "partition", "seed")
    return RunSettings(**{name: getattr(settings, name) for name in deciding})


def fingerprint(federation: Federation) -> str:
    """SHA-256 of all that training sees: the partition and every client's features."""
    digest = hashlib.sha256(federation.partition_hash.encode())
    for graph in federation.graphs:
        x = graph.x
        for part in (x.indptr, x.indices, x.data) if isinstance(x, sp.csr_array) else (x,):
            digest.update(f"{part.shape} {part.dtype}".encode())
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()
