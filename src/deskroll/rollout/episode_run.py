"""EpisodeRun: one episode of a group, attempt after attempt, until it has its outcome.

Guarantees: at most one outcome, sealed in the journal; none where the job is stopped first, and a resume does it. One
that its group gives up is sealed as that, whatever it was doing, unless it had come to its end by itself. No permit is
held while sleeping before a retry.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Protocol

import msgspec

from deskroll.clocks import running_time
from deskroll.errors import FailureClass, FailureKind
from deskroll.events import AttemptRetried, EpisodeSealed
from deskroll.host.backoff import Backoff
from deskroll.rollout.cancelled import being_cancelled
from deskroll.rollout.job_state import JobState
from deskroll.rollout.limits import GroupPermit, Ticket
from deskroll.rollout.orders import Order
from deskroll.rollout.retry import Verdict, begin_anew, is_infrastructure, judge
from deskroll.store.journal import Failed, Sealed
from deskroll.store.names import name_of
from deskroll.types import Episode, EpisodeKey, Failure, Score, StopReason, Task

_log = logging.getLogger(__name__)


class Siblings(Protocol):
    """The group of an episode, as the episode sees it."""

    permit: GroupPermit
    ticket: Ticket

    def note_begun(self) -> None:
        """An attempt of it was begun."""

    def fill_up(self) -> int:
        """It ended unscored: which of the group's fill-ups it gets; 0: there are none left."""


class EpisodeRun:
    """One member of a group; it shares the group's permit from the start."""

    def __init__(self, key: EpisodeKey, task: Task, group: Siblings, state: JobState) -> None:
        self.key = key
        self.over = False
        self.begun_at: float | None = None
        """Running time at which its first attempt was handed over."""
        self._task = task
        self._group = group
        self._state = state
        self._engine = state.engine
        self._inside = True
        self._attempt: int | None = None
        """The number of the attempt that runs."""
        self._why = ""
        """Why it was given up."""
        self._sleep: asyncio.Future[None] | None = None

    # --- for the group ---

    async def run(self) -> Episode | None:
        """Its outcome; None where the job is stopped before that."""
        history = list(self._engine.history.pop(self.key, ()))
        try:
            outcome = await self._attempt_until_sealed(history)
            if outcome is None and self._why:
                outcome = self._seal(self._unrun())
            return outcome
        finally:
            self.over = True
            told = [each for each in history if not _is_stop(each)]
            if told and self._engine.store.index.outcome(self.key) is None:
                self._engine.history[self.key] = told  # for the next job that does it

    def give_up(self, why: str) -> None:
        """It is not wanted any more: end it, wherever it stands."""
        if self.over or self._why:
            return
        self._why = why
        self._engine.limits.episodes.refuse(self)
        if self._attempt is not None:
            self._engine.backend.stop(self.key, self._attempt, None)
        if self._sleep is not None and not self._sleep.done():
            self._sleep.set_result(None)

    def leave(self) -> None:
        """Give its share in the group's permit back, if it has one."""
        if self._inside:
            self._inside = False
            self._group.permit.leave()

    # --- for the engine, while an attempt is handed over ---

    @property
    def stopping(self) -> bool:
        """Whether it is not to begin any more."""
        return bool(self._why) or self._state.stopping

    @property
    def ended_now(self) -> bool:
        """Whether the job was told to end what runs, too."""
        return self._state.ended_now

    # --- the work ---

    async def _attempt_until_sealed(self, history: list[Episode]) -> Episode | None:
        verdict = Verdict(again=True, isolated=bool(history) and _is_crash(history[-1]))
        while True:
            episode = await self._make_attempt(isolated=verdict.isolated)
            if episode is None:
                return None
            judged = await self._engine.examine(episode)
            history.append(judged)
            self._state.stop_if_no_model(episode)
            verdict = self._judge(history, alone=verdict.isolated)
            outcome = self._record(episode, judged, verdict)
            if outcome is not None or not verdict.again or self.stopping or being_cancelled():
                return outcome
            name = name_of(episode.key, episode.attempt)
            _log.info("%s: %s; again in %.1f s", name, episode.score.reason, verdict.pause)
            self.leave()
            await self._pause(verdict.pause)
            self._inside = await self._group.permit.enter()
            if not self._inside:
                return None

    def _judge(self, history: list[Episode], *, alone: bool) -> Verdict:
        """What becomes of the last attempt; where its group fills up, one that would end unscored begins anew."""
        retries, last = self._state.job.spec.retries, history[-1]
        if self._why and _is_stop(last):
            return Verdict(seal=_given_up(last, self._why))
        verdict = judge(history, retries, alone=alone, dice=self._engine.dice)
        if self._why and verdict.again:
            return Verdict()
        if verdict.seal is not None and is_infrastructure(verdict.seal) and (number := self._group.fill_up()):
            history[:] = begin_anew(history)
            backoff = Backoff(base=retries.backoff, longest=retries.backoff_max)
            return Verdict(again=True, anew=True, pause=backoff.pause(number), isolated=alone)
        return verdict

    def _record(self, episode: Episode, judged: Episode, verdict: Verdict) -> Episode | None:
        """Write down what became of an attempt, and tell who wants to know; the outcome, where it is one."""
        engine, outcome = self._engine, None
        if verdict.seal is not None:
            outcome = self._seal(episode if verdict.seal is judged else verdict.seal)  # as its own files have it
        else:
            engine.store.write(
                Failed(episode=judged, epoch=engine.store.epoch, retry_in_s=verdict.pause, anew=verdict.anew)
            )
            if verdict.again:
                engine.sink.emit(AttemptRetried.of(judged, verdict.pause))
        for tell in engine.on_judged:
            tell(episode, verdict.again)
        return outcome

    def _seal(self, outcome: Episode) -> Episode:
        store = self._engine.store
        store.write(Sealed(episode=outcome, epoch=store.epoch))
        self._state.done += 1
        failure = outcome.failure.failure_class if outcome.failure else None
        score = outcome.score.value
        self._engine.sink.emit(EpisodeSealed(key=outcome.key, attempt=outcome.attempt, score=score, failure=failure))
        return outcome

    async def _pause(self, seconds: float) -> None:
        """Sleep, but no longer than the job goes on and it is wanted."""
        if seconds <= 0 or self.stopping:
            return
        self._sleep = asyncio.get_running_loop().create_future()
        stopped = asyncio.ensure_future(self._state.stopped.wait())
        try:
            await asyncio.wait((self._sleep, stopped), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            self._sleep = None

    async def _make_attempt(self, *, isolated: bool) -> Episode | None:
        """One attempt, under its permit; None where it is stopped before it has begun."""
        asked, job, permits = time.monotonic(), self._state.job, self._engine.limits.episodes
        if self._why or not await permits.acquire(job.name, self._group.ticket, self):
            return None
        try:
            waited = round(time.monotonic() - asked, 5)
            attempt = await self._engine.store.next_attempt(self.key)
            if self.stopping:  # that may have taken a while
                return None
            order = Order(
                key=self.key, attempt=attempt, task=self._task, spec=self._state.definition.digest,
                priority=job.priority, isolated=isolated, waited_s=waited, sampling=job.sampling,
            )  # fmt: skip
            return await self._dispatch(order)
        finally:
            permits.release(job.name)

    async def _dispatch(self, order: Order) -> Episode | None:
        name = (order.key, order.attempt)
        self._state.running.add(name)
        self._attempt = order.attempt
        if self.begun_at is None:
            self.begun_at = running_time()
            self._group.note_begun()
        try:
            return await self._engine.dispatch(order, self)
        finally:
            self._attempt = None
            self._state.running.discard(name)

    def _unrun(self) -> Episode:
        """The outcome of one that was given up when no attempt of it ran."""
        last, now = self._engine.store.index.attempts(self.key), time.time()
        unrun = Episode(
            key=self.key, attempt=last, stop=StopReason.CANCELLED, score=Score(value=None, reason=""),
            domain=self._task.domain, started_at=now, ended_at=now,
        )  # fmt: skip
        return _given_up(unrun, self._why)


def _given_up(episode: Episode, why: str) -> Episode:
    failure = Failure(failure_class=FailureClass.CANCELLED, kind=FailureKind.GIVEN_UP, message=why)
    score = Score(value=None, reason=f"given up: {why}")
    return msgspec.structs.replace(episode, stop=StopReason.CANCELLED, failure=failure, score=score)


def _is_stop(episode: Episode) -> bool:
    return episode.failure is not None and episode.failure.failure_class is FailureClass.CANCELLED


def _is_crash(episode: Episode) -> bool:
    return episode.failure is not None and episode.failure.failure_class is FailureClass.WORKER
