"""What the coordinator knows of each site's own training.

A site chooses its model, and says when its choice is final, by its own validation nodes alone. So the metrics that it
shares move nothing but its own line here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass
class Standing:
    """A site's training so far.

    Attributes:
        rounds: How many rounds it took part in: its upload was usable.
        last: The last of them.
        scored_round: The round that its model is of; 0 if there is none.
        val, test: Its accuracy in that round, if the site shares it.
        settled: Whether its choice is final: it had no better round for as long as the patience lasts.
    """

    rounds: int = 0
    last: int = 0
    scored_round: int = 0
    val: float | None = None
    test: float | None = None
    settled: bool = False

    def take_part(self, round_: int, facts: Mapping[str, Any], val: float, test: float) -> None:
        """Take in a round: what the site says of its own choice, and its accuracies."""
        self.rounds += 1
        self.last = round_
        self.settled = facts.get("settled") is True
        self.choose(facts)
        if self.scored_round == round_:
            self.val, self.test = _known(val), _known(test)

    def choose(self, facts: Mapping[str, Any]) -> None:
        """The site says which round its model is of; of one that is not the last, its accuracy may not be known."""
        scored = facts.get("scored_round")
        if type(scored) is int and 0 <= scored <= facts["round"] and scored != self.scored_round:
            self.scored_round, self.val, self.test = scored, None, None


def all_are_settled(standings: Collection[Standing], round_: int, patience: int) -> bool:
    """Whether nobody who still takes part may find a better round; a patience of 0 never ends.

    All have to agree: so no site can end the training of another. One that never settles keeps all busy until the last
    round, but those whose choice is final stay with it.
    """
    if not patience:
        return False
    still_here = [standing for standing in standings if standing.last > round_ - patience]
    return bool(still_here) and all(standing.settled for standing in still_here)


def _known(accuracy: float) -> float | None:
    return accuracy if math.isfinite(accuracy) else None
