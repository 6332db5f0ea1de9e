"""FED-PUB: Baek et al., "Personalized subgraph federated learning", ICML 2023.

Every client looks at a common random graph with its model; the mean of what it sees is its embedding. The server mixes
the models by the cosines of the embeddings. A mask over every weight matrix stays at the client and picks what it uses
of the mixture.

In the authors' release both regularisers act on detached tensors and so do nothing (``regularisers = "as_released"``);
here they act, as published, but with a weight of the masks' L1 norm that validation chose, since the published one then
leaves the model little to work with. Their release also uploads the masks, though nobody reads them; here they stay.
What else differs is in docs/algorithms/fedpub.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedgkd.algorithms.base import Algorithm, ServerRound
from fedgkd.clients import ClientBatch, SmallGraphs, Tensors
from fedgkd.clients.common import CommonFeatures, CommonStructure
from fedgkd.collaboration import Mixing, cosine, row_softmax
from fedgkd.models import Network
from fedgkd.models.masked import MASK, MaskedNetwork
from fedgkd.randomness import stream
from fedgkd.settings import setting
from fedgkd.training import TrainingSettings, local_round
from fedgkd.training.local import personal_model

BLOCKS, BLOCK_NODES, EDGE_PROBABILITY = 5, 100, 0.1


@dataclass(frozen=True)
class FedPubSettings(TrainingSettings):
    scale: float = setting(
        3.0, "sharpness of the softmax over cosines; the authors take 5 where clients overlap", low=0
    )
    regularisers: str = setting(
        "as_published",
        "whether the terms below act (as_published), or not, as in the authors' code (as_released)",
        choices=("as_published", "as_released"),
    )
    mask_l1: float = setting(1e-5, "weight of the masks' L1 norm; the authors write 1e-3", low=0)
    proximal: float = setting(1e-3, "weight of the squared distance to the received weights", low=0)


class FedPub(Algorithm):
    Settings = FedPubSettings
    extra_uploads = ("embedding",)
    model: MaskedNetwork

    def build_model(self, network: Network) -> MaskedNetwork:
        return MaskedNetwork.of(network)

    def shares(self, parameter: str) -> bool:
        return not parameter.startswith(MASK)

    def client_step(self, clients: ClientBatch, download: Tensors) -> Tensors:
        settings: FedPubSettings = self.settings
        acting = settings.regularisers == "as_published"
        upload = local_round(
            clients,
            download,
            self.model,
            settings,
            self.shares,
            proximal=settings.proximal if acting else 0.0,
            mask_l1=settings.mask_l1 if acting else 0.0,
        )
        with clients.timed("embedding"):
            upload["embedding"] = self._embedding(clients)
        return upload

    def server_step(self, uploads: Tensors, server: ServerRound) -> Mixing:
        relation = cosine(uploads["embedding"]).cpu()
        return Mixing(row_softmax(relation, self.settings.scale), relation)

    @torch.no_grad()
    def _embedding(self, clients: ClientBatch) -> Tensor:
        """Mean over the common graph's nodes of the last convolution's output, before ReLU: ``(clients, hidden)``."""
        weights = self.model.effective(personal_model(clients), pruned=True)
        proxy = proxy_graph(clients.seed, self.model.num_features, clients.device)
        return self.model.network.embed(weights, proxy).mean(dim=1)


@lru_cache(maxsize=2)
def proxy_graph(seed: int, num_features: int, device: torch.device) -> SmallGraphs:
    """The common random graph: every client draws it from the run's seed, so it does not have to be sent."""
    draw = stream(seed, "proxy graph")
    upper = np.triu(draw.random((BLOCKS, BLOCK_NODES, BLOCK_NODES)) < EDGE_PROBABILITY, k=1)
    adjacency = sp.csr_array(sp.block_diag((upper | upper.transpose(0, 2, 1)).astype(np.float32)))
    x = torch.from_numpy(draw.standard_normal((BLOCKS * BLOCK_NODES, num_features), np.float32))
    return SmallGraphs(CommonFeatures(x.to(device)), CommonStructure(adjacency, device))
