"""GroupRun: the episodes of one task in one round while they run: under one permit, closed by what their policy says.

Guarantees: why it was closed is in the journal once every member has its outcome, before its permit is free; a member
that the policy does not want any more is ended and sealed as given up. Where the job is stopped first, it is closed as
stopped, and a resume does the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

from deskroll.clocks import running_time
from deskroll.errors import StoreError
from deskroll.events import GroupBegun, GroupEnded
from deskroll.rollout.episode_run import EpisodeRun
from deskroll.rollout.job_state import JobState
from deskroll.rollout.limits import GroupPermit, Ticket
from deskroll.rollout.plan import Group, is_given_up
from deskroll.store.index import Outcome
from deskroll.store.journal import GroupClosed, GroupOpened
from deskroll.types import Episode, EpisodeKey, GroupEnd

_NOW_S = 0.001
_WORDS = {
    GroupEnd.NO_SIGNAL: "{scored} of {size} members are scored, all alike",
    GroupEnd.FAILED: "{unscored} of {size} members ended without a score, and {wanted} must have one",
    GroupEnd.ENOUGH: "the others are scored, and it took {factor:g} times as long as they did",
}


class GroupRun:
    """One group; made when its permit is there."""

    def __init__(self, group: Group, state: JobState, permit: GroupPermit, ticket: Ticket) -> None:
        self.permit = permit
        self.ticket = ticket
        self.outcomes: dict[EpisodeKey, Episode] = {}
        """Of those members that were run here."""
        self.end = GroupEnd.STOPPED
        """Why it was closed; until then, stopped."""
        self.closed_at = 0.0
        self._state = state
        self._policy = state.job.spec.policy
        self._size = state.job.group_size
        self._members = [EpisodeRun(key, group.task, self, state) for key in group.keys]
        self._left = len(self._members)
        self._scores: list[float] = []
        self._unscored = self._given_up = 0
        self._seconds: list[float] = []
        """What scored members took."""
        self._name = (state.job.name, group.keys[0].round, group.task.id)
        self._decided: GroupEnd | None = None
        self._unwanted = ""
        """Why whoever runs the job does not want it any more."""
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, earlier: Sequence[Outcome] = (), seconds: Sequence[float] = ()) -> None:
        """Run it to its end; `earlier`: outcomes of members that earlier starts did, `seconds`: what those took."""
        self._open()
        for outcome in earlier:
            self._count(outcome)
        self._seconds += seconds
        self._decide()
        try:
            if len(self._members) == 1:
                await self._run_member(self._members[0])
            else:
                async with asyncio.TaskGroup() as work:
                    for member in self._members:
                        work.create_task(self._run_member(member))
        finally:
            if self._timer is not None:
                self._timer.cancel()

    # --- for whoever runs the job ---

    def give_up(self, why: str) -> None:
        """It is not wanted any more: members that have not come to their end are sealed as given up."""
        if self._decided is None:
            self._decided, self._unwanted = GroupEnd.FAILED, why
            self._give_up_rest(GroupEnd.FAILED)

    # --- for its members ---

    def note_begun(self) -> None:
        """An attempt of one of them was begun."""
        self._watch_straggler()

    def fill_up(self) -> int:
        """One of them ended unscored: which of the fill-ups it gets; 0: none is left, or the group is decided."""
        filled = self._state.engine.filled
        if self._decided is not None or filled[self._name] >= self._policy.fill_up:
            return 0
        filled[self._name] += 1
        return filled[self._name]

    # --- the work ---

    async def _run_member(self, member: EpisodeRun) -> None:
        try:
            if (outcome := await member.run()) is not None:
                self.outcomes[member.key] = outcome
                if outcome.points is not None and member.begun_at is not None:
                    self._seconds.append(running_time() - member.begun_at)
                self._count(outcome)
                self._decide()
        finally:
            self._left -= 1
            if not self._left:
                self._close()  # before the permit is free, so that no more groups are open than there are permits
            member.leave()

    def _count(self, outcome: Outcome) -> None:
        if (score := outcome.points) is not None:
            self._scores.append(score)
        elif is_given_up(outcome):
            self._given_up += 1
        else:
            self._unscored += 1

    def _decide(self) -> None:
        if self._decided is None:
            self._decided = self._policy.decide(self._size, self._scores, self._unscored + self._given_up)
            if self._decided is not None:
                self._give_up_rest(self._decided)
        self._watch_straggler()

    def _give_up_rest(self, end: GroupEnd) -> None:
        left = [member for member in self._members if not member.over]
        if left:
            self.permit.close()
        for member in left:
            member.give_up(self._why(end))

    def _why(self, end: GroupEnd) -> str:
        if self._unwanted:
            return self._unwanted
        return _WORDS.get(end, "").format(
            scored=len(self._scores), unscored=self._unscored, size=self._size, wanted=self._policy.wanted(self._size),
            factor=self._policy.straggler_factor,
        )  # fmt: skip

    def _watch_straggler(self) -> None:
        """Where all but one are scored and that one runs: give it up when it has had its time."""
        last = [member for member in self._members if not member.over]
        if self._timer is not None or self._decided is not None or len(last) != 1:
            return
        begun, patience = last[0].begun_at, self._policy.patience(self._seconds)
        if begun is None or patience is None or len(self._scores) != self._size - 1:
            return
        left = patience - (running_time() - begun)
        if left > _NOW_S:
            self._timer = asyncio.get_running_loop().call_later(left, self._look_again)
        else:
            self._decided = GroupEnd.ENOUGH
            self._give_up_rest(self._decided)

    def _look_again(self) -> None:
        self._timer = None
        self._watch_straggler()

    def _open(self) -> None:
        if self._size > 1:  # of a group of one, the records of its episode say when it began
            key, engine = self._members[0].key, self._state.engine
            engine.store.write(GroupOpened(phase=key.phase, round=key.round, task=key.task, at=time.time()))
            engine.sink.emit(GroupBegun(phase=key.phase, round=key.round, task=key.task))

    def _close(self) -> None:
        if len(self.outcomes) == len(self._members):
            concluded = self._policy.conclude(self._size, self._scores, self._unscored, self._given_up)
            self.end = GroupEnd.FAILED if self._unwanted else concluded
            self._state.engine.filled.pop(self._name, None)
        self.closed_at = time.time()
        key, engine = self._members[0].key, self._state.engine
        closed = GroupClosed(
            phase=key.phase, round=key.round, task=key.task, at=self.closed_at, why=self._why(self.end), end=self.end
        )
        with contextlib.suppress(StoreError):  # where nothing can be written, the run ends by that
            engine.store.write(closed)
        if self._size > 1:
            engine.sink.emit(GroupEnded(phase=key.phase, round=key.round, task=key.task, end=self.end))
