"""fedgkd: personalised federated learning of graph neural networks.

The public names below are imported when first used, so that the command line starts quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedgkd._version import __version__

if TYPE_CHECKING:
    from fedgkd.algorithms import ALGORITHMS, Algorithm, ServerRound
    from fedgkd.clients import ClientBatch, Tensors
    from fedgkd.collaboration import Mixing
    from fedgkd.data.datasets import DATASETS, load_dataset
    from fedgkd.data.federation import Federation
    from fedgkd.data.graph import Graph
    from fedgkd.data.own import read_federation, read_graph
    from fedgkd.data.partition import partition
    from fedgkd.errors import DataError, FedGKDError, FetchError, RunError, SettingError
    from fedgkd.experiments.api import run
    from fedgkd.experiments.model_file import PersonalModel
    from fedgkd.reporting import load_records
    from fedgkd.settings import setting
    from fedgkd.training import TrainingSettings, local_round

_HOMES = {
    "ALGORITHMS": "fedgkd.algorithms",
    "Algorithm": "fedgkd.algorithms",
    "ClientBatch": "fedgkd.clients",
    "DATASETS": "fedgkd.data.datasets",
    "DataError": "fedgkd.errors",
    "FedGKDError": "fedgkd.errors",
    "Federation": "fedgkd.data.federation",
    "FetchError": "fedgkd.errors",
    "Graph": "fedgkd.data.graph",
    "Mixing": "fedgkd.collaboration",
    "PersonalModel": "fedgkd.experiments.model_file",
    "RunError": "fedgkd.errors",
    "ServerRound": "fedgkd.algorithms",
    "SettingError": "fedgkd.errors",
    "Tensors": "fedgkd.clients",
    "TrainingSettings": "fedgkd.training",
    "load_dataset": "fedgkd.data.datasets",
    "load_records": "fedgkd.reporting",
    "local_round": "fedgkd.training",
    "partition": "fedgkd.data.partition",
    "read_federation": "fedgkd.data.own",
    "read_graph": "fedgkd.data.own",
    "run": "fedgkd.experiments.api",
    "setting": "fedgkd.settings",
}

__all__ = [
    "ALGORITHMS",
    "DATASETS",
    "Algorithm",
    "ClientBatch",
    "DataError",
    "FedGKDError",
    "Federation",
    "FetchError",
    "Graph",
    "Mixing",
    "PersonalModel",
    "RunError",
    "ServerRound",
    "SettingError",
    "Tensors",
    "TrainingSettings",
    "__version__",
    "load_dataset",
    "load_records",
    "local_round",
    "partition",
    "read_federation",
    "read_graph",
    "run",
    "setting",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedgkd' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
