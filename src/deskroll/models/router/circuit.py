"""Circuit: whether an endpoint is asked at all.

Three failures in a row, a connection that is refused, or a failed look at its health close it; after a pause of 1, 2, 4
... 30 s one request at a time is let through, and the first that is answered opens it again.
"""

from __future__ import annotations

from deskroll.host.backoff import Backoff

_IN_A_ROW = 3
_PAUSES = Backoff(base=1.0, longest=30.0)


class Circuit:
    """Of one endpoint. Times are seconds on whatever clock its owner goes by."""

    def __init__(self) -> None:
        self.closed_until: float | None = None
        """When one request may be tried; None: it is open, any number may."""
        self._failures = 0
        self._closings = 0
        self._answered_at: float | None = None
        self._unreached = False
        """Whether it was closed because nobody was there: then a look that finds somebody is reason to try."""

    @property
    def is_open(self) -> bool:
        """Whether any number of requests may go through."""
        return self.closed_until is None

    def lets_through(self, now: float, trials: int) -> bool:
        """Whether a request may, at this moment, while so many are open that were let through a closed one."""
        return self.closed_until is None or (now >= self.closed_until and not trials)

    def note_answer(self, now: float) -> None:
        """A request was answered, in whatever words: whoever answers lives."""
        self.closed_until, self._failures, self._closings = None, 0, 0
        self._answered_at = now

    def note_failure(self, now: float, *, at_once: bool) -> None:
        """A request brought nothing; `at_once`: that is enough to close it."""
        self._failures += 1
        if at_once or self._failures >= _IN_A_ROW or self.closed_until is not None:
            self._close(now, unreached=at_once)

    def note_health(self, now: float, *, asked: float, good: bool) -> None:
        """What came of a look at its health that began at `asked`; a busy server may be late with it."""
        if good:
            if self.closed_until is not None and self._unreached:
                self.closed_until = min(self.closed_until, now)
        elif self._answered_at is None or self._answered_at < asked:
            self._close(now, unreached=True)

    def _close(self, now: float, *, unreached: bool) -> None:
        if self.closed_until is not None and now < self.closed_until:
            return  # by those that were open together with the one that closed it
        self._unreached = unreached
        self._closings += 1
        self.closed_until = now + _PAUSES.pause(self._closings)
