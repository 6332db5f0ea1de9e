"""Settings of local training."""

from __future__ import annotations

from dataclasses import dataclass

from fedgkd.settings import check, setting


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of local training that every algorithm has."""

    local_epochs: int = setting(3, "full-batch epochs that a client trains in a round (E)", low=1)
    lr: float = setting(0.01, "learning rate of Adam", low=0, open_low=True)
    weight_decay: float = setting(1e-6, "L2 weight decay of Adam", low=0)
    decay_unseen: bool = setting(
        True, "weight decay also moves a GCN's first weights of words that a client does not have (off: faster)"
    )
    dropout: float = setting(0.5, "share of hidden activations dropped in training", low=0, high=0.99)

    def __post_init__(self) -> None:
        check(self)
