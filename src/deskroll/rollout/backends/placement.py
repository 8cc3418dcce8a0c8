"""Which worker an attempt is given to, by what each of them has to do; no input or output here.

Attempts that take next to nothing of a core are put together, on the worker that has most of them: one process that is
woken for several answers at a time costs less than several that are woken for one each. Guarantees: that is done only
where it was measured, for all that the worker has, and neither beyond `TOGETHER` attempts, which may die together, nor
beyond `FULL` of a core. Anything else goes to the worker with the fewest attempts: what is new, what computes, and what
cannot be measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

TOGETHER = 64
"""Attempts that a worker is filled up to before another one is used."""
FULL = 0.7
"""Of a core, what a worker is filled up to."""
LIGHT = 0.02
"""Of a core, what an attempt may take to be put together with others."""


class WorkerLoad(NamedTuple):
    """What one worker has to do."""

    attempts: int
    share: float | None = None
    """Of a core, what each of its attempts takes; None: nobody knows."""

    @property
    def has_room(self) -> bool:
        """Whether one more is put together with those that it has."""
        share = self.share
        known_light = share is not None and share <= LIGHT and (self.attempts + 1) * share <= FULL
        return known_light and self.attempts < TOGETHER


def choose_worker(loads: Sequence[WorkerLoad]) -> int:
    """The number of the worker that gets the next attempt."""
    numbers = range(len(loads))
    if with_room := [number for number in numbers if loads[number].has_room]:
        return max(with_room, key=lambda number: loads[number].attempts)
    return min(numbers, key=lambda number: loads[number].attempts)


class LoadGauge:
    """Follows one worker: the attempts that it has, and what it says, again and again, of how busy it was.

    Guarantee: what was measured is that of attempts which were there before, and counts until the last one has ended,
    or something new comes.
    """

    def __init__(self) -> None:
        self.load = WorkerLoad(0)
        self._before = 0
        """Attempts that it had when it last said something; 0: these tell nothing of those that it has now."""

    def count(self, attempts: int) -> None:
        """It has so many from now on."""
        self.load = WorkerLoad(attempts, self.load.share)
        if not attempts:
            self.forget()

    def forget(self) -> None:
        """It gets something to do of which nothing is known."""
        self._before = 0
        self.load = WorkerLoad(self.load.attempts)

    def measure(self, busy: float | None) -> None:
        """It has used so much of a core since it said so last; None: that tells nothing of its attempts."""
        attempts = self.load.attempts
        meanwhile = min(self._before, attempts)
        self.load = WorkerLoad(attempts, busy / meanwhile if busy is not None and meanwhile else None)
        self._before = attempts
