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

from fedgkd.algorithms.base import Algorithm, ServerRound
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.collaboration import Mixing, cosine, row_softmax
from fedgkd.distillation import proxy_embedding
from fedgkd.models import Network
from fedgkd.models.masked import MASK, MaskedNetwork
from fedgkd.settings import setting
from fedgkd.training import TrainingSettings, local_round
from fedgkd.training.local import personal_model


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
            weights = self.model.effective(personal_model(clients), pruned=True)
            upload["embedding"] = proxy_embedding(clients, self.model.network, weights)
        return upload

    def server_step(self, uploads: Tensors, server: ServerRound) -> Mixing:
        relation = cosine(uploads["embedding"]).cpu()
        return Mixing(row_softmax(relation, self.settings.scale), relation)
