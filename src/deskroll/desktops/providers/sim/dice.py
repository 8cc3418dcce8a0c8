"""Turn: every random decision about an operation on a desktop, each from a seed of its own.

Guarantees: a decision depends on the seed, on what is decided, on the number of the desktop in its world and on how
many operations of that kind the desktop had before; never on how tasks interleave.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from deskroll.desktops.providers.sim.times import Shape, Times


class Turn(NamedTuple):
    """One operation on one desktop."""

    seed: int
    desktop: int
    number: int
    """How many operations of its kind came before."""

    def happens(self, what: str, probability: float) -> bool:
        """Whether something of this probability happens."""
        return probability > 0 and self._rng(what).random() < probability

    def lasts(self, what: str, times: Times) -> float:
        """How long something takes, in seconds."""
        # Making a generator costs more than the rest of a request's bookkeeping: not where there is nothing to draw.
        return times.first if times.shape is Shape.FIXED else times.sample(self._rng(what))

    def _rng(self, what: str) -> random.Random:
        return random.Random(f"{self.seed}/{what}/{self.desktop}/{self.number}")  # noqa: S311  (a simulation)
