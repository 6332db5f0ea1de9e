"""A client's task as a tiny synthetic graph, and the task features taken from it."""

from fedgkd.distillation.dynamic import DistillationSettings, distil
from fedgkd.distillation.features import TASK_FEATURES, task_feature
from fedgkd.distillation.prototypes import prototypes
from fedgkd.distillation.proxy import proxy_embedding
from fedgkd.distillation.static import distil_static
from fedgkd.distillation.synthetic import SyntheticGraph, common_start

__all__ = [
    "TASK_FEATURES",
    "DistillationSettings",
    "SyntheticGraph",
    "common_start",
    "distil",
    "distil_static",
    "prototypes",
    "proxy_embedding",
    "task_feature",
]
