"""One seed decides everything: each random draw has a stream of its own, named by what it is for.

A stream is a pure function of (seed, purpose, keys), so nothing about generators has to be stored to resume a run,
and a client draws the same numbers in a batch of one hundred as alone at its site.
"""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """The generator for ``purpose``, told apart by whole numbers such as client and round."""
    return np.random.Generator(np.random.SFC64([seed, zlib.crc32(purpose.encode()), *keys]))
