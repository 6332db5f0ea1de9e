"""Client-batched graph neural networks."""

from fedgkd.models.dropout import Dropout
from fedgkd.models.network import BACKBONES, Drop, Model, Network

MODELS: dict[str, type[Model]] = {kind.__name__: kind for kind in (Network,)}
"""Every kind of model that a model file may hold."""

__all__ = ["BACKBONES", "MODELS", "Drop", "Dropout", "Model", "Network"]
