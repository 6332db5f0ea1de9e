"""One local epoch: ours, the plain loop and the floor.

An epoch is timed as it happens: the training of a round, with the number of epochs that the settings say, over that
number. What training does once a round (taking over the received weights, gathering rows, preparing random streams) is
in it. Beside it stands the marginal epoch: what one more of them costs, in which such things cancel. A program that
moves work from the epochs to the round looks better by the second than it is, so the first is the one that counts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.floor import Floor
from benchmarks.ours import Ours
from benchmarks.plain import PlainFederation
from benchmarks.timing import Timed, race, seconds
from fedgkd.data.federation import Federation

Training = Callable[[int], float]
"""Trains all clients for so many epochs and says how many seconds that took."""


def contestants(ours: Ours, federation: Federation, cached: bool) -> dict[str, Training]:
    method, hidden = ours.config.method, ours.config.run.hidden
    floor = Floor(ours.batches, ours.changed_parameters(), hidden, method.lr, method.weight_decay)
    trainings: dict[str, Training] = {"ours": ours.time_training, "floor": _timed(floor.train)}
    for name, keeps in {"plain": False, "plain_cached": True}.items():
        if cached or not keeps:
            plain = PlainFederation(federation, method, ours.received, hidden, keeps)
            trainings[name] = _timed(plain.train)
    return trainings


def time_epochs(trainings: dict[str, Training], epochs: int, more: int, repeats: int) -> dict[str, Any]:
    """Seconds of an epoch by contestant, and under ``marginal`` those of one more."""
    jobs: dict[str, Timed] = {}
    for name, train in trainings.items():
        jobs[f"{name}/short"] = partial(train, epochs)
        jobs[f"{name}/long"] = partial(train, epochs + more)
    best = race(jobs, repeats)
    marginal = {name: (best[f"{name}/long"] - best[f"{name}/short"]) / more for name in trainings}
    return {name: best[f"{name}/short"] / epochs for name in trainings} | {"marginal": marginal}


def _timed(train: Callable[[int], object]) -> Training:
    return lambda epochs: seconds(partial(train, epochs))
