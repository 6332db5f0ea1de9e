"""One seed decides everything random in the data; each purpose draws from a stream of its own."""

from __future__ import annotations

import numpy as np

from fedgkd.errors import SettingError


def generator(seed: int, purpose: str) -> np.random.Generator:
    """The random numbers for ``purpose``: drawing more of them for one purpose never changes another."""
    if seed < 0:
        raise SettingError(f"seed {seed} is not usable: it must be 0 or larger")
    return np.random.default_rng([seed, int.from_bytes(purpose.encode(), "big")])
