"""Client-batched graph neural networks."""

from fedgkd.models.dropout import Dropout
from fedgkd.models.network import BACKBONES, Network

__all__ = ["BACKBONES", "Dropout", "Network"]
