"""Client-batched graph neural networks."""

from fedgkd.models.dropout import Dropout
from fedgkd.models.masked import MaskedNetwork
from fedgkd.models.mended import MendedNetwork
from fedgkd.models.network import BACKBONES, Classifier, Drop, Model, Network
from fedgkd.models.two_channel import TwoChannel

MODELS: dict[str, type[Model]] = {kind.__name__: kind for kind in (Network, MaskedNetwork, MendedNetwork, TwoChannel)}
"""Every kind of model that a model file may hold."""

__all__ = [
    "BACKBONES",
    "MODELS",
    "Classifier",
    "Drop",
    "Dropout",
    "MaskedNetwork",
    "MendedNetwork",
    "Model",
    "Network",
    "TwoChannel",
]
