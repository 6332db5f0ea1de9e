"""GCFL and GCFL+: Xie et al., "Federated graph classification over non-IID graphs", NeurIPS 2021.

Clients of a cluster share the mean of their graph convolutions; the readout stays at the client, as everything but the
convolutions does in the authors' release. A cluster splits by minimum cut when its mean update has all but vanished
while some client still moves. GCFL cuts by the cosines of the round's updates, GCFL+ by dynamic time warping between
the norms of the last few.

Published for graph classification; here for node classification. The mean is uniform by default, where the release
weights by training examples. A split restarts the norm sequences of the cluster that split, where the release restarts
everybody's. What else differs is in docs/algorithms/gcfl.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedgkd.algorithms.base import Algorithm, ServerRound
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.collaboration import Mixing
from fedgkd.collaboration.clusters import (
    Splitting,
    cluster_means,
    dtw_distances,
    split_clusters,
    update_cosines,
    update_products,
)
from fedgkd.models.network import READOUT
from fedgkd.settings import setting
from fedgkd.training import TrainingSettings, local_round

CLUSTERS, NORMS = "clusters", "norms"


@dataclass(frozen=True)
class GCFLSettings(TrainingSettings):
    eps_1: float = setting(2.0, "a cluster may split once the norm of its mean update is below (ε1)", low=0)
    eps_2: float = setting(4.0, "and the largest norm of an update in it is above (ε2)", low=0)
    split_after: int = setting(20, "rounds before the first split", low=0)
    weighting: str = setting("uniform", "how a cluster's mean weights it", choices=("uniform", "train_nodes"))


@dataclass(frozen=True)
class GCFLPlusSettings(GCFLSettings):
    sequence_length: int = setting(5, "rounds over which the norms of updates are compared", low=2)
    standardise: bool = setting(False, "divide every sequence of norms by its standard deviation")


class GCFL(Algorithm):
    Settings = GCFLSettings

    def shares(self, parameter: str) -> bool:
        return not parameter.startswith(READOUT)

    def client_step(self, clients: ClientBatch, download: Tensors) -> Tensors:
        return local_round(clients, download, self.model, self.settings, self.shares)

    def server_step(self, uploads: Tensors, server: ServerRound) -> Mixing:
        products = update_products(uploads, server.downloads, self.shared)
        relation = update_cosines(products)
        ready = torch.ones(len(relation), dtype=torch.bool)
        found = _split(self, server, products, lambda rows: relation[rows][:, rows] + 1.0, ready)
        weights = _means(self, found, uploads, server)
        return Mixing(weights, relation, memory={CLUSTERS: found.labels}, facts=found.facts)


class GCFLPlus(Algorithm):
    Settings = GCFLPlusSettings

    def shares(self, parameter: str) -> bool:
        return not parameter.startswith(READOUT)

    def client_step(self, clients: ClientBatch, download: Tensors) -> Tensors:
        return local_round(clients, download, self.model, self.settings, self.shares)

    def server_step(self, uploads: Tensors, server: ServerRound) -> Mixing:
        settings: GCFLPlusSettings = self.settings
        cohort = list(server.cohort)
        products = update_products(uploads, server.downloads, self.shared)
        unknown = torch.full((self.num_clients, settings.sequence_length), torch.nan, dtype=torch.float64)
        norms = server.memory.get(NORMS, unknown).clone()
        norms[cohort] = torch.cat([norms[cohort, 1:], products.diagonal().sqrt().unsqueeze(1)], dim=1)
        ready = norms[cohort].isfinite().all(dim=1)
        distances = dtw_distances(_standardised(norms[cohort]) if settings.standardise else norms[cohort])
        found = _split(self, server, products, lambda rows: _closeness(distances[rows][:, rows]), ready)
        norms[[cohort[row] for row in found.divided]] = torch.nan
        weights = _means(self, found, uploads, server)
        relation = _closeness(distances) if ready.all() else None
        return Mixing(weights, relation, memory={CLUSTERS: found.labels, NORMS: norms}, facts=found.facts)


def _split(
    algorithm: Algorithm,
    server: ServerRound,
    products: Tensor,
    similarity: Callable[[Sequence[int]], Tensor],
    ready: Tensor,
) -> Splitting:
    settings: GCFLSettings = algorithm.settings
    labels = server.memory.get(CLUSTERS, torch.zeros(algorithm.num_clients, dtype=torch.int64))
    ready = ready & (server.round > settings.split_after)
    return split_clusters(labels, server.cohort, products, similarity, ready, settings.eps_1, settings.eps_2)


def _means(algorithm: Algorithm, found: Splitting, uploads: Tensors, server: ServerRound) -> Tensor:
    settings: GCFLSettings = algorithm.settings
    nodes = uploads["nodes"][:, 0].cpu()
    counts = nodes if settings.weighting == "train_nodes" else torch.ones_like(nodes)
    return cluster_means(found.labels[list(server.cohort)], counts)


def _closeness(distances: Tensor) -> Tensor:
    """How much nearer than the farthest pair each pair is."""
    return distances.max() - distances


def _standardised(sequences: Tensor) -> Tensor:
    """Every sequence over its standard deviation; one that never changes stays as it is."""
    spread = sequences.std(dim=1, correction=0, keepdim=True)
    return sequences / spread.where(spread > 0, 1.0)
