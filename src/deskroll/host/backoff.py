"""Backoff: how long to wait before what has failed is tried again: twice as long after each failure, up to a limit."""

from __future__ import annotations

from deskroll.types import Record

_MOST_DOUBLINGS = 60


class Backoff(Record, frozen=True):
    """Pauses in seconds; whoever wants them spread multiplies them by dice of its own."""

    base: float
    """After the first failure."""
    longest: float

    def pause(self, failures: int) -> float:
        """The pause after so many failures in a row; none after none."""
        return min(self.longest, self.base * 2.0 ** min(failures - 1, _MOST_DOUBLINGS)) if failures > 0 else 0.0
