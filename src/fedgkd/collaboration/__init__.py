"""What the server makes of the clients' uploads: relation, kernel, mixing weights."""

from fedgkd.collaboration.kernels import KERNELS, has_structure, kernel_matrix, leading_eigenvalue, row_softmax
from fedgkd.collaboration.mixing import Mixing, effective_donors, mix, uniform, weighted, with_own_share
from fedgkd.collaboration.quality import auc, spearman
from fedgkd.collaboration.relation import RELATIONS, both, centred, correlation, cosine, weighted_cosine

__all__ = [
    "KERNELS",
    "RELATIONS",
    "Mixing",
    "auc",
    "both",
    "centred",
    "correlation",
    "cosine",
    "effective_donors",
    "has_structure",
    "kernel_matrix",
    "leading_eigenvalue",
    "mix",
    "row_softmax",
    "spearman",
    "uniform",
    "weighted",
    "weighted_cosine",
    "with_own_share",
]
