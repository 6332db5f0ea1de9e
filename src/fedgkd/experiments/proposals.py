"""What the trials of a tuning study try."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from fedgkd.experiments.search_spaces import Space
from fedgkd.randomness import stream

_DRAWS = 20
"""How often TPE is asked for something new before any untried combination will do."""


class Proposals(BaseSampler):
    """TPE whose draws are decided by the seed and by the trial's place among those that count.

    So processes that share a study do not propose the same, and a study that was stopped goes on as it would have. The
    first trial takes the defaults. A space with no more combinations than there are trials is tried out whole. What has
    been tried is not proposed again.
    """

    def __init__(self, space: Space, defaults: dict[str, Any], trials: int, seed: int) -> None:
        self._distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(values) for name, values in space.items()
        }
        self._space, self._seed = space, seed
        self._fixed = [defaults] if all(defaults[name] in values for name, values in space.items()) else []
        if combinations(space) <= trials:
            self._fixed += [chosen for chosen in self._shuffled() if chosen not in self._fixed]
        self._place, self._tpe = 0, TPESampler(seed=seed)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._place = place_of(study, trial.number)
        draw = stream(self._seed, "proposal", self._place)
        self._tpe = TPESampler(seed=int(draw.integers(2**31)))

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._distributions

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        tried = [other.params for other in _earlier(study, trial.number)]
        # If nothing is left, it is a trial too many, which is not carried out.
        return next((proposal for proposal in self._ideas(study, trial) if proposal not in tried), {})

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._tpe.sample_independent(study, trial, param_name, param_distribution)

    def _ideas(self, study: Study, trial: FrozenTrial) -> Iterator[dict[str, Any]]:
        """What to try at this place, the best idea first; at last, all that there is."""
        yield from self._fixed[self._place : self._place + 1]
        for _ in range(_DRAWS):
            yield {
                name: self._tpe.sample_independent(study, trial, name, distribution)
                for name, distribution in self._distributions.items()
            }
        yield from self._shuffled(self._place)

    def _shuffled(self, *keys: int) -> list[dict[str, Any]]:
        every = [dict(zip(self._space, values, strict=True)) for values in itertools.product(*self._space.values())]
        return [every[k] for k in stream(self._seed, "order of combinations", *keys).permutation(len(every))]


def combinations(space: Space) -> int:
    return math.prod(len(values) for values in space.values())


def place_of(study: Study, number: int) -> int:
    """How many trials before that one count: all but those that failed or whose process died."""
    return len(_earlier(study, number))


def _earlier(study: Study, number: int) -> list[FrozenTrial]:
    trials = study.get_trials(deepcopy=False)
    return [trial for trial in trials if trial.number < number and trial.state != TrialState.FAIL]
