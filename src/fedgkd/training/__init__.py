"""The one local training loop and the one evaluation."""

from fedgkd.training.evaluation import evaluate
from fedgkd.training.local import local_round
from fedgkd.training.optimiser import Adam
from fedgkd.training.settings import TrainingSettings

__all__ = ["Adam", "TrainingSettings", "evaluate", "local_round"]
