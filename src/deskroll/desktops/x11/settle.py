"""When has the screen settled after an action? A state machine without I/O; `changes.py` feeds it.

Two phases: wait up to `react` for a first change, then until `quiet` has passed without one, at most `cap` in all.
Four things make that hold on real programs:

- Neither begins before the programs that got the input have read it: one that has just opened its window, on a busy
  machine, may leave it waiting for seconds.
- Small regions that were changing by themselves before the action (a caret, a clock) are left out.
- After a click, a change the size of a button is feedback (hover, pressed look), not the answer: it does not end
  the first phase early.
- Time does not count against a program that has work to do and waits for the CPU: while one of the desktop's
  processes is runnable, neither `react` nor `quiet` runs out, up to `cap`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from deskroll.desktops.base import Settle, SettleOutcome

FEEDBACK_AREA = 24_000
"""Pixels; a pressed button, a highlighted row. The smallest dialogs have twice as many."""
PERIODIC_AREA = 5_000
"""Pixels; carets and clocks are smaller."""
PERIODIC_MARGIN = 3
"""Pixels around a periodic region that belong to it."""
HISTORY_S = 3.0
"""How far back changes are remembered, to find what changes by itself."""
BUSY_RECHECK_S = 0.02
"""How soon to look again when a program was runnable."""


class Rect(NamedTuple):
    """A rectangle of the screen."""

    x: int
    y: int
    width: int
    height: int

    @property
    def area(self) -> int:
        """Its pixels."""
        return self.width * self.height

    def grown(self, margin: int) -> Rect:
        """The rectangle with a margin around it."""
        return Rect(self.x - margin, self.y - margin, self.width + 2 * margin, self.height + 2 * margin)

    def contains(self, other: Rect) -> bool:
        """Whether `other` lies within."""
        return (
            self.x <= other.x
            and self.y <= other.y
            and self.x + self.width >= other.x + other.width
            and self.y + self.height >= other.y + other.height
        )

    def union(self, other: Rect) -> Rect:
        """The smallest rectangle around both."""
        x, y = min(self.x, other.x), min(self.y, other.y)
        right = max(self.x + self.width, other.x + other.width)
        bottom = max(self.y + self.height, other.y + other.height)
        return Rect(x, y, right - x, bottom - y)


class Change(NamedTuple):
    """Something was painted."""

    at: float
    rect: Rect


def periodic_regions(history: Iterable[Change]) -> list[Rect]:
    """Small regions that changed at least twice, a while apart, before anything was done."""
    regions: list[Rect] = []
    small = [change for change in history if change.rect.area <= PERIODIC_AREA]
    for change in small:
        region = change.rect.grown(PERIODIC_MARGIN)
        times = [other.at for other in small if region.contains(other.rect)]
        if max(times) - min(times) >= 0.2 and region not in regions:
            regions.append(region)
    return regions


class Settler:
    """Follows one action: told of changes, says when to look again and how it ended."""

    def __init__(self, settle: Settle, began: float, ignored: Sequence[Rect], *, clicked: bool) -> None:
        self._settle = settle
        self._acted = began
        self._read: float | None = None
        self._ignored = ignored
        self._clicked = clicked
        self._last: float | None = None
        self._bounds: Rect | None = None

    def acted(self, now: float) -> None:
        """The last input has been delivered: `cap` starts here; changes before count as reaction."""
        self._acted = now

    def read(self, now: float) -> None:
        """Programs have read all of the input: `react` and `quiet` start here. Without it, the wait is capped."""
        self._read = now

    def changed(self, change: Change) -> None:
        """The screen really changed in `change.rect`."""
        if any(region.contains(change.rect) for region in self._ignored):
            return
        self._last = change.at
        self._bounds = self._bounds.union(change.rect) if self._bounds else change.rect

    def poll(self, now: float, *, busy: bool) -> SettleOutcome | float:
        """The outcome, or the time at which to ask again unless the screen changes before."""
        capped = self._acted + self._settle.cap
        due = self._due()
        if now >= capped:
            return self._outcome() if now >= due else SettleOutcome.CAPPED
        if now < due:
            return min(due, capped)
        if busy:
            return min(now + BUSY_RECHECK_S, capped)
        return self._outcome()

    def _due(self) -> float:
        if self._read is None:
            return math.inf
        reacted = self._read + self._settle.react
        if self._last is None or self._bounds is None:
            return reacted
        quiet = max(self._last, self._read) + self._settle.quiet
        if self._clicked and self._bounds.area <= FEEDBACK_AREA:
            return max(quiet, reacted)
        return quiet

    def _outcome(self) -> SettleOutcome:
        return SettleOutcome.NO_REACTION if self._last is None else SettleOutcome.SETTLED
