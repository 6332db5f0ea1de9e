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
from fedgkd.collaboration import (
    KERNELS,
    RELATIONS,
    Mixing,
    has_structure,
    kernel_matrix,
    leading_eigenvalue,
    row_softmax,
    weighted_cosine,
    with_own_share,
)
from fedgkd.distillation import TASK_FEATURES, DistillationSettings, distil, distil_static, prototypes, proxy_embedding
from fedgkd.errors import SettingError
from fedgkd.models import Model, Network
from fedgkd.models.masked import MASK, MaskedNetwork
from fedgkd.randomness import stream
from fedgkd.settings import setting
from fedgkd.training import local_round
from fedgkd.training.local import personal_model

STATIC_FEATURE = "static_task_feature"
RELATION, SEEN = "relation", "relation_rounds"

EMBEDDING, WEIGHTS, UPDATES = "embedding", "weights", "updates"
UNDISTILLED = (EMBEDDING, WEIGHTS, UPDATES)
"""What the paper holds distilled tasks against: FED-PUB's embedding, the model, and what a round changes about it."""

PROTOTYPES, COUNTS = "prototypes", "task_counts"

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
        "or, with nothing distilled, class prototypes of the client's own graph, FED-PUB's embedding, the weights, "
        "or their change in the round",
        choices=(*TASK_FEATURES, PROTOTYPES, *UNDISTILLED),
    )
    prototype_size: int = setting(0, "numbers per prototype, by a random projection; 0: one per feature", low=0)
    prototype_noise: float = setting(0.0, "standard deviation of the noise on a prototype, whose norm is near 1", low=0)
    prototype_min_count: int = setting(1, "training nodes of a class below which its prototype is not sent", low=1)
    proximal: float = setting(1e-3, "weight of the squared distance to the received model (λ)", low=0)
    masks: bool = setting(
        False, "every weight matrix has a private mask, as FED-PUB's have: sparser models of few labels"
    )
    mask_l1: float = setting(1e-5, "weight of the masks' L1 norm", low=0)
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
    tau_by_spectrum: bool = setting(
        False, "divide τ by the largest eigenvalue of the centred relation, so that it need not follow n"
    )
    tau_s: float = setting(3.0, "temperature of the row softmax over the kernel (τ_s)", low=0)
    own_share: float | None = setting(
        None,
        "share of its own model that a client keeps, whoever its partners are; none: the softmax decides",
        low=0,
        high=1,
    )
    gate: bool = setting(False, "partners count alike as long as the relation groups the clients no more than chance")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.distillation == "static" and self.task_feature in (PROTOTYPES, *UNDISTILLED):
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
        elif settings.task_feature == PROTOTYPES:
            self.extra_uploads = ("task_feature", COUNTS)

    def build_model(self, network: Network) -> Model:
        return MaskedNetwork.of(network) if self.settings.masks else network

    def shares(self, parameter: str) -> bool:
        return not parameter.startswith(MASK)

    def start(self, clients: ClientBatch) -> None:
        super().start(clients)
        settings: FedGKDSettings = self.settings
        if settings.distillation == "static":
            with clients.timed("distillation"):
                feature = distil_static(clients, self.network, settings, settings.static_models)
            clients.state[STATIC_FEATURE] = feature
        if settings.task_feature == PROTOTYPES:
            with clients.timed("distillation"):
                clients.state[STATIC_FEATURE], clients.state[COUNTS] = prototypes(
                    clients, settings.prototype_size, settings.prototype_noise, settings.prototype_min_count
                )

    def client_step(self, clients: ClientBatch, download: Tensors) -> Tensors:
        settings: FedGKDSettings = self.settings
        l1 = settings.mask_l1 if settings.masks else 0.0
        upload = local_round(clients, download, self.model, settings, self.shares, settings.proximal, l1)
        if not settings.relates_models:
            with clients.timed("embedding" if settings.task_feature == EMBEDDING else "distillation"):
                upload["task_feature"] = self._task_feature(clients)
        if settings.task_feature == PROTOTYPES:
            upload[COUNTS] = clients.state[COUNTS]
        return upload

    def server_step(self, uploads: Tensors, server: ServerRound) -> Mixing:
        settings: FedGKDSettings = self.settings
        relation, memory = self._averaged(self._relation(uploads, server), server)
        kernel = kernel_matrix(
            relation, settings.kernel, self._tau(relation), settings.identity_term, settings.normalise_kernel
        )
        structured = not settings.gate or has_structure(relation, stream(self.seed, "gate"))
        weights = self._mixture(kernel if structured else torch.ones_like(kernel))
        return Mixing(weights, relation, kernel, memory, {"gate_open": structured} if settings.gate else {})

    def _relation(self, uploads: Tensors, server: ServerRound) -> Tensor:
        settings: FedGKDSettings = self.settings
        if settings.task_feature == PROTOTYPES:
            return weighted_cosine(uploads["task_feature"], uploads[COUNTS]).cpu()
        feature = self._model_feature(uploads, server) if settings.relates_models else uploads["task_feature"]
        return RELATIONS[settings.relation](feature).cpu()

    def _tau(self, relation: Tensor) -> float:
        settings: FedGKDSettings = self.settings
        tau = settings.tau / len(relation) if settings.tau_per_client else settings.tau
        leading = leading_eigenvalue(relation) if settings.tau_by_spectrum else 1.0
        return tau / leading if leading > 0 else tau

    def _mixture(self, kernel: Tensor) -> Tensor:
        settings: FedGKDSettings = self.settings
        if settings.own_share is None:
            return row_softmax(kernel, settings.tau_s)
        # A client's similarity to itself would leave nothing of the softmax to the others.
        partners = kernel.clone().fill_diagonal_(float(kernel.min()))
        return with_own_share(row_softmax(partners, settings.tau_s), settings.own_share)

    def _task_feature(self, clients: ClientBatch) -> Tensor:
        settings: FedGKDSettings = self.settings
        if settings.distillation == "static" or settings.task_feature == PROTOTYPES:
            return clients.state[STATIC_FEATURE]
        if settings.task_feature == EMBEDDING:
            return proxy_embedding(clients, self.network, self._weights(clients)).unsqueeze(2)
        return distil(clients, self.network, self._weights(clients), settings)

    def _weights(self, clients: ClientBatch) -> Tensors:
        """The weights that each client's network works with."""
        params = personal_model(clients)
        return self.model.effective(params, pruned=True) if isinstance(self.model, MaskedNetwork) else params

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
