"""BootFailures: when a kind of boot that keeps failing may be tried again.

Boots that fail side by side count as one failure: only one that was started after the last failure adds to the row.
A boot that leads to a desktop that works ends the row: the `BootFailures` are then thrown away.
"""

from __future__ import annotations

from dataclasses import dataclass

from deskroll.errors import DeskrollError
from deskroll.host.backoff import Backoff

SINGLE_AFTER = 3
"""From so many failures in a row on, one boot at a time is tried."""


@dataclass
class BootFailures:
    """The row of failures of one kind of boot."""

    backoff: Backoff
    """From the second failure on."""
    failures: int = 0
    until: float = 0.0
    last_failure: float = float("-inf")
    final: DeskrollError | None = None
    """The failure that trying again does not mend, if it was one."""

    def failed(self, started_at: float, now: float, error: DeskrollError, *, final: bool) -> None:
        """A boot that was started then has failed now."""
        self.final = error if final else None
        if final:
            self.until = now + self.backoff.longest
        if started_at < self.last_failure:
            return
        self.failures += 1
        self.last_failure = now
        self.until = max(self.until, now + self.backoff.pause(self.failures - 1))

    def allows(self, booting: int, now: float) -> bool:
        """Whether one more may be started while `booting` others are on their way."""
        return now >= self.until and (self.failures < SINGLE_AFTER or booting == 0)
