"""Who is asked in a round: everybody but sites that have been dark for two rounds and have not come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

DARK_AFTER = 2
"""Rounds that a site may miss in a row before nobody waits for it."""


@dataclass
class Attendance:
    """What is known of the sites' presence.

    Attributes:
        misses: Rounds in a row that each site has missed.
        seen: When each site last asked for work or answered, in seconds of ``clock``.
        missed_at: When each site's last miss was noticed.
    """

    sites: Sequence[str]
    clock: Callable[[], float] = time.time
    misses: dict[str, int] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)
    missed_at: dict[str, float] = field(default_factory=dict)

    def saw(self, site: str) -> None:
        """A site asked for work or answered."""
        if site in self.sites:
            self.seen[site] = self.clock()

    def is_dark(self, site: str) -> bool:
        """Whether a site has missed two rounds in a row and not shown itself since."""
        if self.misses.get(site, 0) < DARK_AFTER:
            return False
        return self.seen.get(site, -1.0) <= self.missed_at[site]

    def expected(self, reachable: Iterable[str]) -> list[str]:
        """The sites to ask, in the order of the federation."""
        there = set(reachable)
        return [site for site in self.sites if site in there and not self.is_dark(site)]

    def end_round(self, asked: Iterable[str], answered: Iterable[str]) -> list[str]:
        """Take down who answered; returns the sites that have become dark by it."""
        answers = set(answered)
        newly_dark = []
        for site in asked:
            if site in answers:
                self.misses[site] = 0
                self.saw(site)
                continue
            self.misses[site] = self.misses.get(site, 0) + 1
            self.missed_at[site] = self.clock()
            if self.misses[site] == DARK_AFTER:
                newly_dark.append(site)
        return newly_dark
