"""Clients, held as a batch: axis 0 of every tensor is the client."""

from fedgkd.clients.batch import ClientBatch, Tensors, all_finite
from fedgkd.clients.graphs import (
    ConstantFeatures,
    DenseFeatures,
    Features,
    GivenDenseFeatures,
    GraphBatch,
    GraphView,
    JoinedFeatures,
    SmallGraphs,
    SparseFeatures,
)
from fedgkd.clients.structure import DenseStructure, PartialStructure, SparseStructure, Structure

__all__ = [
    "ClientBatch",
    "ConstantFeatures",
    "DenseFeatures",
    "DenseStructure",
    "Features",
    "GivenDenseFeatures",
    "GraphBatch",
    "GraphView",
    "JoinedFeatures",
    "PartialStructure",
    "SmallGraphs",
    "SparseFeatures",
    "SparseStructure",
    "Structure",
    "Tensors",
    "all_finite",
]
