"""All algorithms, in a plain dict; adding one is a file and a line here."""

from fedgkd.algorithms.base import REPORT, Algorithm, ServerRound
from fedgkd.algorithms.fedavg import FedAvg
from fedgkd.algorithms.fedgkd import FedGKD
from fedgkd.algorithms.fedper import FedPer
from fedgkd.algorithms.fedprox import FedProx
from fedgkd.algorithms.local import Local

ALGORITHMS: dict[str, type[Algorithm]] = {
    "fedgkd": FedGKD,
    "local": Local,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedper": FedPer,
}

__all__ = ["ALGORITHMS", "REPORT", "Algorithm", "FedAvg", "FedGKD", "FedPer", "FedProx", "Local", "ServerRound"]
