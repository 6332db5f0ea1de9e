"""All algorithms, in a plain dict; adding one is a file and a line here."""

from fedgkd.algorithms.base import REPORT, Algorithm, Oracle, ServerRound
from fedgkd.algorithms.centralised import Centralised
from fedgkd.algorithms.fedavg import FedAvg
from fedgkd.algorithms.fedgkd import FedGKD
from fedgkd.algorithms.fedper import FedPer
from fedgkd.algorithms.fedprox import FedProx
from fedgkd.algorithms.fedpub import FedPub
from fedgkd.algorithms.fedsage import FedSage
from fedgkd.algorithms.fedsage_plus import FedSagePlus
from fedgkd.algorithms.fedstar import FedStar
from fedgkd.algorithms.gcfl import GCFL, GCFLPlus
from fedgkd.algorithms.local import Local

ALGORITHMS: dict[str, type[Algorithm]] = {
    "fedgkd": FedGKD,
    "local": Local,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedper": FedPer,
    "fedpub": FedPub,
    "gcfl": GCFL,
    "gcfl_plus": GCFLPlus,
    "fedsage": FedSage,
    "fedsage_plus": FedSagePlus,
    "fedstar": FedStar,
}

ORACLES: dict[str, type[Oracle]] = {"centralised": Centralised}
"""What may see all clients' graphs: not federated, so apart from the algorithms and the contracts that they keep."""

METHODS: dict[str, type[Algorithm]] = ALGORITHMS | ORACLES
"""Everything that a run can be asked for."""

__all__ = [
    "ALGORITHMS",
    "METHODS",
    "ORACLES",
    "REPORT",
    "Algorithm",
    "FedAvg",
    "FedGKD",
    "FedPer",
    "FedProx",
    "Local",
    "Oracle",
    "ServerRound",
]
