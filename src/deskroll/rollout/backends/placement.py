"""Which worker an attempt is given to, by what each of them has to do; no input or output here.

Attempts that take next to nothing are put together, on the worker that has most of them: one process that is
woken for several answers at a time costs less than several that are woken for one each. Guarantees: that is done only
where it was measured, for all that the worker has, and neither beyond `TOGETHER` attempts, which may die together, nor
beyond `FULL`, nor where it has `LARGE` of the memory that it may have. Anything else goes to the worker with the
fewest attempts: what is new, what computes, and what cannot be measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

TOGETHER = 64
"""Attempts that a worker is filled up to before another one is used."""
FULL = 0.7
"""Of what attempts share in a worker (`BusyMeter`: a core, the thread that writes), what it is filled up to."""
LIGHT = 0.02
"""Of the same, what an attempt may take to be put together with others."""

LARGE = 0.5
"""Of the memory that a worker may have before it is killed, what it is filled up to: attempts grow."""


class WorkerLoad(NamedTuple):
    """What one worker has to do."""

    attempts: int
    share: float | None = None
    """Of the same, what each of its attempts takes; None: nobody knows."""
    memory: float = 0.0
    """Of the memory that it may have, what it had when it was last looked at."""

    @property
    def has_room(self) -> bool:
        """Whether one more is put together with those that it has."""
        share = self.share
        known_light = share is not None and share <= LIGHT and (self.attempts + 1) * share <= FULL
        return known_light and self.attempts < TOGETHER and self.memory < LARGE


def choose_worker(loads: Sequence[WorkerLoad]) -> int:
    """The number of the worker that gets the next attempt."""
    numbers = range(len(loads))
    if with_room := [number for number in numbers if loads[number].has_room]:
        return max(with_room, key=lambda number: loads[number].attempts)
    return min(numbers, key=lambda number: loads[number].attempts)


class LoadGauge:
    """Follows one worker: the attempts and the memory that it has, and what it says, ever again, of how busy it was.

    Guarantee: what was measured is that of attempts of which most were there all the time, and counts until the last
    one has ended, or something new comes. Moments (`at`) are seconds of any one clock.
    """

    def __init__(self, at: float) -> None:
        self.load = WorkerLoad(0)
        self._at = self._since = at
        self._attempt_s = 0.0
        """Since it last said something: seconds, times the attempts that it had."""
        self._known = False
        """Whether nothing new has come since then."""

    def count(self, attempts: int, at: float) -> None:
        """It has so many from now on."""
        self._go_on(at)
        self.load = self.load._replace(attempts=attempts)
        if not attempts:
            self.forget()

    def forget(self) -> None:
        """It gets something to do of which nothing is known."""
        self._known = False
        self.load = self.load._replace(share=None)

    def measure(self, busy: float | None, at: float) -> None:
        """It was so busy since it said so last; None: that tells nothing of its attempts."""
        self._go_on(at)
        attempts = self.load.attempts
        mean = self._attempt_s / (at - self._since) if at > self._since else 0.0
        there = self._known and mean > 0 and mean >= attempts / 2
        self.load = self.load._replace(share=busy / mean if there and busy is not None else None)
        self._since, self._attempt_s, self._known = at, 0.0, True

    def weigh(self, memory: float) -> None:
        """It has so much of the memory that it may have."""
        self.load = self.load._replace(memory=memory)

    def _go_on(self, at: float) -> None:
        self._attempt_s += self.load.attempts * (at - self._at)
        self._at = at
