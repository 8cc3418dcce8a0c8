"""Deaths: which desktops died, and when: what dies together dies of its host. Pure: times are given.

A death is heard of from the attempt that used the desktop, or from the pool, whichever is first.
"""

from __future__ import annotations

import math

from deskroll.desktops.pool import PoolStatus
from deskroll.desktops.pool.slot import State
from deskroll.errors import FailureKind
from deskroll.types import Episode, Record, Stage

AT_ONCE_S = 2.0
"""Deaths that are heard of within so long of each other are one event."""
HEARD_S = 2.0
"""After so long, every death of the same moment was heard of: holders and the pool tell within a second."""
_KINDS = (FailureKind.DESKTOP_LOST, FailureKind.LEASE_LOST)
_KEPT_S = 600.0


class _Death(Record, frozen=True):
    heard_at: float
    used_from: float
    """When the attempt began whose desktop it was; long ago where that is not known."""

    def is_one_with(self, other: _Death) -> bool:
        """Whether both died at the same time; one that was only taken into use after the other had died did not."""
        close = abs(self.heard_at - other.heard_at) <= AT_ONCE_S
        return close and self.used_from <= other.heard_at and other.used_from <= self.heard_at


class Deaths:
    """What was heard of. All times are of one clock that does not jump."""

    def __init__(self) -> None:
        self._heard: dict[str, _Death] = {}

    def hear_attempt(self, episode: Episode, now: float) -> None:
        """An attempt has ended: perhaps with its desktop."""
        if episode.desktop and episode.failure is not None and episode.failure.kind in _KINDS:
            lasted = sum(seconds for stage, seconds in episode.seconds.items() if stage != Stage.PERMIT)
            known = self._heard.get(episode.desktop)
            self._note(episode.desktop, _Death(known.heard_at if known else now, now - lasted))

    def hear_pool(self, status: PoolStatus, now: float) -> None:
        """The pool says which desktops died while somebody had them."""
        for each in () if status.draining else status.desktops:  # of a drained one, all are to be stopped
            if each.doomed and each.state is State.LEASED and each.id not in self._heard:
                self._note(each.id, _Death(now, -math.inf))

    def beside(self, desktop: str) -> int:
        """How many others died at the same time as this one."""
        own = self._heard.get(desktop)
        others = [each for name, each in self._heard.items() if name != desktop]
        return 0 if own is None else sum(map(own.is_one_with, others))

    def _note(self, desktop: str, death: _Death) -> None:
        self._heard[desktop] = death
        while next(iter(self._heard.values())).heard_at < death.heard_at - _KEPT_S:
            del self._heard[next(iter(self._heard))]
