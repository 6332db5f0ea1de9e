"""What the server makes of the clients' uploads: relation, kernel, mixing weights."""

from fedgkd.collaboration.kernels import KERNELS, kernel_matrix, row_softmax
from fedgkd.collaboration.mixing import Mixing, mix, uniform, weighted
from fedgkd.collaboration.quality import auc, spearman
from fedgkd.collaboration.relation import RELATIONS, both, centred, correlation, cosine

__all__ = [
    "KERNELS",
    "RELATIONS",
    "Mixing",
    "auc",
    "both",
    "centred",
    "correlation",
    "cosine",
    "kernel_matrix",
    "mix",
    "row_softmax",
    "spearman",
    "uniform",
    "weighted",
]
