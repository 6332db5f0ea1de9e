"""Who is asked in a round: everybody but sites that missed two rounds or refused three, for the time being."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

DARK_AFTER = 2
"""Rounds that a site may miss in a row before nobody waits for it."""
RESTS_AFTER = 3
"""Rounds that a site may refuse in a row before it is left in peace for a while."""
REST = 30.0
"""Seconds after which a site that refuses is asked again: what it lacks may have been put right."""


@dataclass
class Attendance:
    """What is known of the sites' presence.

    Attributes:
        misses: Rounds in a row that each site has missed.
        seen: When each site last asked for work or answered, in seconds of ``clock``.
        missed_at: When each site's last miss was noticed.
        refusals: Rounds in a row that each site has refused.
        refused_at: When each site's last refusal came.
    """

    sites: Sequence[str]
    clock: Callable[[], float] = time.time
    misses: dict[str, int] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)
    missed_at: dict[str, float] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)
    refused_at: dict[str, float] = field(default_factory=dict)

    def saw(self, site: str) -> None:
        """A site asked for work or answered."""
        if site in self.sites:
            self.seen[site] = self.clock()

    def is_dark(self, site: str) -> bool:
        """Whether a site has missed two rounds in a row and not shown itself since."""
        if self.misses.get(site, 0) < DARK_AFTER:
            return False
        return self.seen.get(site, -1.0) <= self.missed_at[site]

    def rests(self, site: str) -> bool:
        """Whether a site has refused three rounds in a row, the last of them just now."""
        if self.refusals.get(site, 0) < RESTS_AFTER:
            return False
        return self.clock() < self.refused_at[site] + REST

    def expected(self, reachable: Iterable[str]) -> list[str]:
        """The sites to ask, in the order of the federation."""
        there = set(reachable)
        return [site for site in self.sites if site in there and not self.is_dark(site) and not self.rests(site)]

    def end_round(self, asked: Iterable[str], answered: Iterable[str], refused: Collection[str] = ()) -> list[str]:
        """Take down who answered, and who of them refused; returns the sites that have become dark by it."""
        answers = set(answered)
        newly_dark = []
        for site in asked:
            self.refusals[site] = self.refusals.get(site, 0) + 1 if site in refused else 0
            if site in refused:
                self.refused_at[site] = self.clock()
            if site in answers:
                self.misses[site] = 0
                self.saw(site)
                continue
            self.misses[site] = self.misses.get(site, 0) + 1
            self.missed_at[site] = self.clock()
            if self.misses[site] == DARK_AFTER:
                newly_dark.append(site)
        return newly_dark
