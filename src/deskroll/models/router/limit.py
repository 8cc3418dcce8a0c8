"""Limit: how many requests an endpoint may have open at a time: a number that was given, or one that is learnt.

Learnt: from 16 on, one more for each limit's worth of good answers, given while at least half of it was in use and the
server itself had nobody waiting; half as many when it says that it is asked too much, or when its own queue is long in
three looks in a row. Never below 1, and halved once for all requests that were open together: a server that refuses
forty at a time has said one thing.
"""

from __future__ import annotations

FIRST = 16
_LONG_LOOKS = 3


class Limit:
    """Of one endpoint."""

    def __init__(self, fixed: int | None = None) -> None:
        self.most = FIRST if fixed is None else fixed
        self.queue = 0
        """Requests that wait in the server itself, as far as it was asked."""
        self._fixed = fixed is not None
        self._good = 0
        self._long = 0
        self._halvings = 0

    @property
    def era(self) -> int:
        """To be kept with a request that is opened, and brought with what came of it."""
        return self._halvings

    def note_good(self, in_flight: int) -> None:
        """A request was answered, while so many others were open."""
        if self._fixed or self.queue or 2 * in_flight < self.most:
            return
        self._good += 1
        if self._good >= self.most:
            self._good = 0
            self.most += 1

    def note_overload(self, era: int) -> None:
        """A request was refused because there are too many; `era` is that of its opening."""
        if era == self._halvings:
            self._halve()

    def note_queue(self, waiting: int, running: int) -> None:
        """So many requests wait in the server, and so many run."""
        self.queue = waiting
        self._long = self._long + 1 if waiting > running / 2 else 0
        if self._long >= _LONG_LOOKS:
            self._long = 0
            self._halve()

    def _halve(self) -> None:
        self._good = 0
        self._halvings += 1
        if not self._fixed:
            self.most = max(1, self.most // 2)
