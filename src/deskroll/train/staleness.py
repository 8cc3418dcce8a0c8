"""Staleness: how far generation may run ahead of training. Pure.

A group's *lag* is how many steps were taken since the oldest weights that any of its members was sampled with.

    pace       a group is begun only while those that are in flight, wait to be trained on, or are being trained on are
               fewer than (max_steps_off_policy + 1) batches; all that finishes with a signal is trained on
    wait       besides, a step waits for groups that would be too old for the one after it
    withhold   besides pace, groups that are too old by then are not trained on

Both of these are a hard bound.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable

from deskroll.types import Record


class Staleness(enum.StrEnum):
    """What is done about groups that were sampled with old weights."""

    PACE = "pace"
    """No more are begun than can be trained on soon; every one is trained on, whatever its lag."""
    WAIT = "wait"
    """Besides, steps wait for old groups, so that none is ever older than max_steps_off_policy."""
    WITHHOLD = "withhold"
    """Besides pace, groups that are older than max_steps_off_policy are not trained on."""


class Pace(Record, frozen=True):
    """The rule for one run."""

    groups_per_batch: int
    most_behind: int = 0
    """max_steps_off_policy; 0 is synchronous: a batch, a step, a batch."""
    staleness: Staleness = Staleness.PACE

    def admits(self, outstanding: int) -> bool:
        """Whether one more group may be begun while so many are in flight, wait, or are being trained on.

        That is: in flight and closed with signal since the start are fewer than (most_behind + steps + 1) batches.
        """
        return outstanding < (self.most_behind + 1) * self.groups_per_batch

    def must_wait(self, step: int, left: Iterable[int]) -> bool:
        """Whether a step on the oldest groups that are closed would be too early, given the versions of all others.

        Each of those can be trained on until `most_behind` steps after its version, and a step takes a batch: where
        more of them are due by some step than the steps until then can take, the next one has to be on older groups.
        """
        if self.staleness is not Staleness.WAIT:
            return False
        due = Counter(max(version + self.most_behind - step, 0) for version in left)
        return any(
            sum(number for after, number in due.items() if after <= steps) > steps * self.groups_per_batch
            for steps in range(self.most_behind + 1)
        )

    def withholds(self, step: int, version: int) -> bool:
        """Whether a group that was sampled with that version is too old to be trained on after so many steps.

        Where steps wait, none is, unless servers did not take newer weights.
        """
        return self.staleness is not Staleness.PACE and step - version > self.most_behind
