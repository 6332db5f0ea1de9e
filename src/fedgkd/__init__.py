"""fedgkd: personalised federated learning of graph neural networks."""

from fedgkd._version import __version__

__all__ = ["__version__"]
