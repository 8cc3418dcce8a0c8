"""RunBudget: what a whole run may cost and how long it may take, over all of its starts, and what it has used up.

Cost is counted when an attempt ends, whatever came of it, so what is in flight when the budget is used up comes on top.
Of attempts that were lost with their process nothing is known, and nothing is counted.
"""

from __future__ import annotations

import time

from deskroll.report.timeline import starts_of
from deskroll.rollout.config import RunLimits
from deskroll.store import Index
from deskroll.store.journal import Closed, Failed, Opened, Sealed, Started
from deskroll.types import Episode


class RunBudget:
    """Of one start of a run, with what earlier starts have used up."""

    def __init__(self, limits: RunLimits, earlier: Index | None = None) -> None:
        self._cost_limit = limits.run_cost_usd
        self._time_limit = limits.run_time
        self._cost = _cost(earlier) if earlier is not None and self._cost_limit is not None else 0.0
        self._before = _seconds(earlier) if earlier is not None and self._time_limit is not None else 0.0
        self._since = time.monotonic()

    def spend(self, episode: Episode) -> None:
        """An attempt has ended."""
        self._cost += episode.usage.cost_usd or 0.0

    @property
    def seconds_left(self) -> float | None:
        """Until its time is over; None where there is no end to it."""
        if self._time_limit is None:
            return None
        return max(0.0, self._time_limit - self._seconds_used)

    @property
    def _seconds_used(self) -> float:
        return self._before + time.monotonic() - self._since

    def used_up(self) -> str:
        """What is used up, in words; empty while nothing is."""
        if self._cost_limit is not None and self._cost >= self._cost_limit:
            return f"limits.run_cost_usd is used up: {self._cost:.4g} of {self._cost_limit:g} USD were spent"
        if self.seconds_left == 0.0:
            return f"limits.run_time is used up: the run has had its {self._time_limit:g} s"
        return ""

    @property
    def raised(self) -> str:
        """The setting that lets it go on, with twice as much."""
        if self._cost_limit is not None and self._cost >= self._cost_limit:
            return f"limits.run_cost_usd={_number(2 * max(self._cost_limit, self._cost))}"
        return f"limits.run_time={_number(2 * max(self._time_limit or 0.0, self._seconds_used))}"


def _number(value: float) -> str:
    """As everybody reads it: 2000, not 2e+03."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _ended(index: Index) -> list[Episode]:
    """All attempts of earlier starts that came to an end, those that did not count included."""
    sealed = [each.episode for each in index.records(Sealed)]
    return sealed + [each.episode for each in index.records(Failed)]


def _cost(index: Index) -> float:
    return sum(each.usage.cost_usd or 0.0 for each in _ended(index))


def _seconds(index: Index) -> float:
    """How long earlier starts were under way."""
    times = [each.at for each in index.records(Started)] + [each.ended_at for each in _ended(index)]
    starts = starts_of(list(index.records(Opened)), index.records(Closed), times)
    return sum(max(0.0, each.ended - each.begun) for each in starts)
