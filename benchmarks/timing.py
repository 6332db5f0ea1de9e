"""Times of several contestants on a machine that others use too: interleaved, and the best counts."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping

Timed = Callable[[], float]
"""Does something and says how many seconds of it count."""


def seconds(job: Callable[[], object]) -> float:
    """How long the job takes."""
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def race(jobs: Mapping[str, Timed], repeats: int) -> dict[str, float]:
    """The best time of each job over that many turns.

    Every turn runs every job, so that a slow spell of the machine hits all alike, and the minimum is what a job takes
    when nothing disturbs it. A job runs twice, of which the second time counts: in a real run a round follows a round,
    and nobody else has just filled the caches. One turn before is not counted: it makes lazily built matrices.
    """
    best = dict.fromkeys(jobs, float("inf"))
    for turn in range(repeats + 1):
        for name, job in jobs.items():
            gc.collect()
            job()
            counted = job()
            if turn:
                best[name] = min(best[name], counted)
    return best
