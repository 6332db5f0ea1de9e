"""FedGKD: Pan et al., "FedGKD: Unleashing the power of collaboration in federated graph neural networks", 2023.

Each round a client trains, then distils its task into a tiny synthetic graph against its current model. The server
relates the clients by the distilled task features (R), turns the relation into a kernel that sees the whole
collaboration network (S), and gives every client its own mixture of all models (Q). What the paper leaves open, and
what we do there, is in docs/algorithms/fedgkd.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedgkd.algorithms.base import Algorithm, ServerRound
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.collaboration import KERNELS, RELATIONS, Mixing, kernel_matrix, row_softmax
from fedgkd.distillation import DistillationSettings, distil, distil_static
from fedgkd.settings import setting
from fedgkd.training import local_round
from fedgkd.training.local import personal_model

STATIC_FEATURE = "static_task_feature"


@dataclass(frozen=True)
class FedGKDSettings(DistillationSettings):
    proximal: float = setting(1e-3, "weight of the squared distance to the received model (λ)", low=0)
    distillation: str = setting("dynamic", "distil every round, or once before training", choices=("dynamic", "static"))
    static_models: int = setting(50, "random models matched in static distillation", low=1)
    relation: str = setting("correlation", "how task features are compared", choices=tuple(RELATIONS))
    kernel: str = setting("exponential", "kernel over the collaboration network", choices=KERNELS)
    tau: float = setting(0.05, "temperature of the matrix exponential (τ)", low=0)
    tau_per_client: bool = setting(False, "divide τ by the number of clients that take part")
    identity_term: bool = setting(True, "start the exponential's series at κ = 0 (off: exp(τR) − I)")
    normalise_kernel: bool = setting(False, "divide the kernel by its diagonal")
    tau_s: float = setting(3.0, "temperature of the row softmax over the kernel (τ_s)", low=0)


class FedGKD(Algorithm):
    Settings = FedGKDSettings
    extra_uploads = ("task_feature",)

    def shares(self, parameter: str) -> bool:
        return True

    def start(self, clients: ClientBatch) -> None:
        super().start(clients)
        settings: FedGKDSettings = self.settings
        if settings.distillation == "static":
            with clients.timed("distillation"):
                feature = distil_static(clients, self.network, settings, settings.static_models)
            clients.state[STATIC_FEATURE] = feature

    def client_step(self, clients: ClientBatch, download: Tensors) -> Tensors:
        settings: FedGKDSettings = self.settings
        upload = local_round(clients, download, self.model, settings, self.shares, settings.proximal)
        with clients.timed("distillation"):
            if settings.distillation == "static":
                upload["task_feature"] = clients.state[STATIC_FEATURE]
            else:
                upload["task_feature"] = distil(clients, self.network, personal_model(clients), settings)
        return upload

    def server_step(self, uploads: Tensors, server: ServerRound) -> Mixing:
        settings: FedGKDSettings = self.settings
        relation = RELATIONS[settings.relation](uploads["task_feature"]).cpu()
        tau = settings.tau / len(relation) if settings.tau_per_client else settings.tau
        kernel = kernel_matrix(relation, settings.kernel, tau, settings.identity_term, settings.normalise_kernel)
        return Mixing(row_softmax(kernel, settings.tau_s), relation, kernel)
