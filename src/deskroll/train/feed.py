"""Feed: the groups of a training run on their way: begun as the pace allows, closed, taken in batches for steps.

It is the source of the training job, and what the loop takes its batches from. Guarantees: no group is begun beyond the
pace; every group that closes with a signal is in exactly one batch, or is told as withheld; batches are of the oldest
groups first, by their weights, then by the order in which they were begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from deskroll.errors import DeskrollError
from deskroll.rollout.group import GroupResult
from deskroll.rollout.job import Batch
from deskroll.train.order import TaskOrder
from deskroll.train.staleness import Pace
from deskroll.types import GroupEnd

Name = tuple[int, str]
"""Round and task: a group's name in the training job."""
_BARREN = 10
"""So many batches' worth of groups in a row without a signal end the run."""


class NoSignal(DeskrollError):
    """Nothing that could be learned from came for a long time."""


@dataclass
class Taken:
    """One batch, and what was passed over since the last."""

    groups: list[GroupResult]
    withheld: list[GroupResult] = field(default_factory=list)
    no_signal: list[Name] = field(default_factory=list)
    failed: list[Name] = field(default_factory=list)


def has_signal(group: GroupResult) -> bool:
    """Whether its scores differ: else no advantage comes of it."""
    return group.end is not GroupEnd.FAILED and len(set(group.scores)) > 1


def version_of(group: GroupResult, otherwise: int) -> int:
    """The oldest version that any of its members was sampled with; `otherwise`: nobody said."""
    return min((int(each) for each in group.versions if each.isdecimal()), default=otherwise)


class Feed:
    """Of one start of a run. `begun`: groups of earlier starts that were not used; `following`: the next number."""

    def __init__(
        self, order: TaskOrder, pace: Pace, *, step: int = 0, begun: Sequence[int] = (), following: int = 0
    ) -> None:
        self._order = order
        self._pace = pace
        self._begun = list(begun)
        self._following = following
        self._in_flight: dict[Name, tuple[int, int]] = {}
        """The number of each group that runs, and the version that it was begun with."""
        self._closed: list[tuple[int, GroupResult]] = []
        """With a signal, and not used yet."""
        self._training = 0
        self._passed = Taken([])
        self._barren = 0
        """Groups in a row without a signal."""
        self._changed = asyncio.Event()
        self._ended = False
        self.step = step
        """How many steps were taken."""
        self.version = step
        """Of the weights that are served."""

    @property
    def outstanding(self) -> int:
        """Groups in flight, those that wait for a step, and those that one is being taken on."""
        return len(self._in_flight) + len(self._closed) + self._training

    @property
    def waiting(self) -> int:
        """Groups that wait for a step."""
        return len(self._closed)

    # --- for the training job ---

    async def __aiter__(self) -> AsyncIterator[Batch]:
        """One group at a time, until it is ended."""
        while True:
            while not self._ended and not (self._begun or self._pace.admits(self.outstanding)):
                await self._change()
            if self._ended:
                return
            number, version = self._next()
            round_, task = self._order.at(number)
            self._in_flight[round_, task.id] = (number, version)
            yield Batch(tasks=(task,), round=round_)

    def _next(self) -> tuple[int, int]:
        """The number of the group that is begun now, and the version that it has at least."""
        if self._begun:  # by an earlier start, nobody knows with which version: as old as may be
            return self._begun.pop(0), self.step - self._pace.most_behind
        self._following += 1
        return self._following - 1, self.version

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is begun."""
        return self._ended

    def end(self) -> None:
        """Begin nothing more."""
        self._ended = True
        self._changed.set()

    def note_closed(self, group: GroupResult) -> None:
        """A group has finished."""
        number, _ = self._in_flight.pop((group.round, group.task.id))
        if has_signal(group):
            self._closed.append((number, group))
            self._closed.sort(key=lambda each: (version_of(each[1], self.step), each[0]))
            self._barren = 0
        else:
            self._barren += 1
            passed = self._passed.failed if group.end is GroupEnd.FAILED else self._passed.no_signal
            passed.append((group.round, group.task.id))
        self._changed.set()

    # --- for the loop ---

    async def take(self) -> Taken | None:
        """Wait for the next batch, of which `done` says when its step was taken; None: nothing more comes."""
        while not self._ended:
            self._withhold()
            wanted = self._pace.groups_per_batch
            if len(self._closed) >= wanted and not self._must_wait():
                taken, self._passed = self._passed, Taken([])
                taken.groups = [group for _, group in self._closed[:wanted]]
                del self._closed[:wanted]
                self._training = wanted
                return taken
            if self._barren >= _BARREN * wanted:
                raise NoSignal(
                    f"{self._barren} groups in a row had no signal: every member of each scored the same, or too few "
                    "were scored. Make tasks easier or harder (category, difficulty), groups larger (group_size), or "
                    "sample warmer (temperature)"
                )
            await self._change()
        return None

    def _must_wait(self) -> bool:
        """Whether a step on the groups that are closed would leave others too old."""
        running = [version for _, version in self._in_flight.values()]
        later = [version_of(group, self.step) for _, group in self._closed[self._pace.groups_per_batch :]]
        return self._pace.must_wait(self.step, [*running, *later])

    def done(self, step: int) -> None:
        """The step on the batch was taken: more may be begun."""
        self.step, self._training = step, 0
        self._changed.set()

    def _withhold(self) -> None:
        old = [each for each in self._closed if self._pace.withholds(self.step, version_of(each[1], self.step))]
        self._passed.withheld += [group for _, group in old]
        self._closed = [each for each in self._closed if each not in old]

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
