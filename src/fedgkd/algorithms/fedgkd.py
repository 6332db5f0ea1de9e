"""FedGKD: Pan et al., "FedGKD: Unleashing the power of collaboration in federated graph neural networks", 2023.

Each round a client trains, then distils its task into a tiny synthetic graph against its current model. The server
relates the clients by the distilled task features (R), turns the relation into a kernel that sees the whole
collaboration network (S), and gives every client its own mixture of all models (Q). What the paper leaves open, and
what we do there, is in docs/algorithms/fedgkd.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedgkd.algorithms.base import Algorithm, ServerRound
from fedgkd.clients import ClientBatch, Tensors
from fedgkd.collaboration import KERNELS, RELATIONS, Mixing, kernel_matrix, row_softmax
from fedgkd.distillation import TASK_FEATURES, DistillationSettings, distil, distil_static, proxy_embedding
from fedgkd.errors import SettingError
from fedgkd.models import Network
from fedgkd.settings import setting
from fedgkd.training import local_round
from fedgkd.training.local import personal_model

STATIC_FEATURE = "static_task_feature"
RELATION, SEEN = "relation", "relation_rounds"

EMBEDDING, WEIGHTS, UPDATES = "embedding", "weights", "updates"
UNDISTILLED = (EMBEDDING, WEIGHTS, UPDATES)
"""What the paper holds distilled tasks against: FED-PUB's embedding, the model, and what a round changes about it."""

PAPER = {
    "nodes_per_class": 1,
    "distill_steps": 5,
    "x0_scale": 1.0,
    "task_feature": "x_h",
    "relation": "correlation",
    "relation_rounds": 1,
}
"""What the paper says where our defaults differ; it is silent on the first two."""

BEST = {"model": "sage", "select": "midpoint"}
"""What makes the best models, as validation has it, whatever the paper uses and scores."""

PRESETS: dict[str, dict[str, Any]] = {"default": {}, "paper": PAPER, "best": BEST}


@dataclass(frozen=True)
class FedGKDSettings(DistillationSettings):
    preset: str = setting(
        "default",
        "where values come from that are not given: our choice, the paper to the letter, or what makes the best models",
        choices=tuple(PRESETS),
    )
    task_feature: str = setting(
        "predictions",
        "what describes a task: X‖H, X, H, Y of the distilled graph, or the class distributions predicted on it; "
        "or, with nothing distilled, FED-PUB's embedding, the weights, or their change in the round",
        choices=(*TASK_FEATURES, *UNDISTILLED),
    )
    proximal: float = setting(1e-3, "weight of the squared distance to the received model (λ)", low=0)
    distillation: str = setting("dynamic", "distil every round, or once before training", choices=("dynamic", "static"))
    static_models: int = setting(50, "random models matched in static distillation", low=1)
    relation: str = setting(
        "both", "how task features are compared: cosine, correlation, both", choices=tuple(RELATIONS)
    )
    kernel: str = setting("exponential", "kernel over the collaboration network", choices=KERNELS)
    tau: float = setting(0.05, "temperature of the matrix exponential (τ)", low=0)
    tau_per_client: bool = setting(False, "divide τ by the number of clients that take part")
    identity_term: bool = setting(True, "start the exponential's series at κ = 0 (off: exp(τR) − I)")
    normalise_kernel: bool = setting(False, "divide the kernel by its diagonal")
    relation_rounds: int = setting(
        100, "rounds over which the server averages the relation (1: each on its own)", low=1
    )
    tau_s: float = setting(3.0, "temperature of the row softmax over the kernel (τ_s)", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.distillation == "static" and self.task_feature in UNDISTILLED:
            raise SettingError(f"task_feature={self.task_feature} is not distilled; leave distillation at dynamic")

    @property
    def relates_models(self) -> bool:
        """By the weights that the server gets anyway."""
        return self.task_feature in (WEIGHTS, UPDATES)


class FedGKD(Algorithm):
    Settings = FedGKDSettings
    extra_uploads: tuple[str, ...] = ("task_feature",)
    presets = PRESETS

    def __init__(self, settings: FedGKDSettings, network: Network, num_clients: int, seed: int) -> None:
        super().__init__(settings, network, num_clients, seed)
        if settings.relates_models:
            self.extra_uploads = ()

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
        if not settings.relates_models:
            with clients.timed("embedding" if settings.task_feature == EMBEDDING else "distillation"):
                upload["task_feature"] = self._task_feature(clients)
        return upload

    def server_step(self, uploads: Tensors, server: ServerRound) -> Mixing:
        settings: FedGKDSettings = self.settings
        feature = self._model_feature(uploads, server) if settings.relates_models else uploads["task_feature"]
        relation = RELATIONS[settings.relation](feature).cpu()
        relation, memory = self._averaged(relation, server)
        tau = settings.tau / len(relation) if settings.tau_per_client else settings.tau
        kernel = kernel_matrix(relation, settings.kernel, tau, settings.identity_term, settings.normalise_kernel)
        return Mixing(row_softmax(kernel, settings.tau_s), relation, kernel, memory=memory)

    def _task_feature(self, clients: ClientBatch) -> Tensor:
        settings: FedGKDSettings = self.settings
        if settings.distillation == "static":
            return clients.state[STATIC_FEATURE]
        if settings.task_feature == EMBEDDING:
            return proxy_embedding(clients, self.network, personal_model(clients)).unsqueeze(2)
        return distil(clients, self.network, personal_model(clients), settings)

    def _model_feature(self, uploads: Tensors, server: ServerRound) -> Tensor:
        """The weights in one column, less those that the client started from if it is about updates."""
        start = server.downloads if self.settings.task_feature == UPDATES else {}
        parts = (uploads[name] - start[name] if start else uploads[name] for name in self.shared)
        return torch.cat([part.flatten(1) for part in parts], dim=1).unsqueeze(2)

    def _averaged(self, relation: Tensor, server: ServerRound) -> tuple[Tensor, Tensors]:
        """The mean over the last rounds in which both of a pair took part, and what is kept for the next.

        Tasks do not change from round to round, but noise does, and models that are mixed grow alike.
        """
        if self.settings.relation_rounds == 1:
            return relation, {}
        nothing = torch.zeros(self.num_clients, self.num_clients, dtype=relation.dtype)
        mean, seen = (server.memory.get(name, nothing).cpu().clone() for name in (RELATION, SEEN))
        rows = torch.tensor(server.cohort)
        pairs = (rows.unsqueeze(1), rows)
        seen[pairs] = (seen[pairs] + 1.0).clamp(max=self.settings.relation_rounds)
        mean[pairs] += (relation - mean[pairs]) / seen[pairs]
        return mean[pairs], {RELATION: mean, SEEN: seen}
