"""What the trials of a tuning study try."""

from __future__ import annotations

import itertools
import math
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from fedgkd.experiments.search_spaces import Space
from fedgkd.randomness import stream


class Proposals(BaseSampler):
    """TPE whose draws are decided by the seed and by the trial's place among those that count.

    So processes that share a study do not propose the same, and a study that was stopped goes on as it would have. The
    first trial takes the defaults. A space with no more combinations than there are trials is tried out whole.
    """

    def __init__(self, space: Space, defaults: dict[str, Any], trials: int, seed: int) -> None:
        self._distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(values) for name, values in space.items()
        }
        self._seed = seed
        self._fixed = [defaults] if all(defaults[name] in values for name, values in space.items()) else []
        if combinations(space) <= trials:
            rest = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
            order = stream(seed, "order of combinations").permutation(len(rest))
            self._fixed += [rest[k] for k in order if rest[k] not in self._fixed]
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
        if self._place < len(self._fixed):
            return self._fixed[self._place]
        return self._tpe.sample_relative(study, trial, self._tpe.infer_relative_search_space(study, trial))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._tpe.sample_independent(study, trial, param_name, param_distribution)


def combinations(space: Space) -> int:
    return math.prod(len(values) for values in space.values())


def place_of(study: Study, number: int) -> int:
    """How many trials before that one count: all but those that failed or whose process died."""
    earlier = (trial for trial in study.get_trials(deepcopy=False) if trial.number < number)
    return sum(trial.state != TrialState.FAIL for trial in earlier)
