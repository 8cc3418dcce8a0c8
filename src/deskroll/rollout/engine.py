"""Engine: runs plans. One object, shared by every phase that runs on it, so that its limits hold over all of them.

Owns permits, retries and what the journal says of attempts and outcomes. Guarantees: every planned episode ends with
exactly one sealed outcome, unless the run is stopped before that; what was stopped has none, and a resume does it. What
an attempt has spent is in the journal, also where an error ends the run under it, as long as its process answers. No
permit is held while sleeping before a retry.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence

from deskroll.errors import (
    BackendLost,
    BackgroundLost,
    ConfigError,
    DeskrollError,
    FailureClass,
    ModelError,
    StoreError,
    WorkerLost,
)
from deskroll.events import (
    AttemptDropped,
    AttemptEnded,
    AttemptRetried,
    AttemptStarted,
    EpisodeSealed,
    EventSink,
    GroupBegun,
    GroupEnded,
    JobEnded,
    RunStopping,
    guarded,
)
from deskroll.models.base import ModelForbidden
from deskroll.rollout.backends import Backend
from deskroll.rollout.cancelled import being_cancelled
from deskroll.rollout.deaths import HEARD_S, Deaths
from deskroll.rollout.limits import GroupPermit, Limits
from deskroll.rollout.orders import Order
from deskroll.rollout.plan import Group, make_plan
from deskroll.rollout.retry import Retries, Verdict, acquit, doubt, is_evidence, judge
from deskroll.rollout.tally import begin_job
from deskroll.store import RunStore
from deskroll.store.journal import Failed, GroupClosed, GroupOpened, Sealed, Started
from deskroll.store.names import name_of
from deskroll.types import Episode, EpisodeKey, Failure, Score, Stage, StopReason, Task

_log = logging.getLogger(__name__)
_NO_MODEL = 20
"""So many attempts in a row (or twice what is in flight) must fail by the model's server for the run to stop."""
_ENDING_S = 10.0
"""How long an attempt may take to end when the run ends under it."""


class Engine:
    """Runs episodes on a backend and writes their outcomes to a store."""

    def __init__(
        self,
        backend: Backend,
        store: RunStore,
        limits: Limits,
        retries: Retries | None = None,
        *,
        sink: EventSink | None = None,
        history: Mapping[EpisodeKey, Sequence[Episode]] | None = None,
        seed: int | None = None,
    ) -> None:
        self.limits = limits
        self.deaths = Deaths()
        self.running: dict[tuple[EpisodeKey, int], float] = {}
        """Attempts that were handed to the backend, and when."""
        self.on_ended: Callable[[Episode], None] | None = None
        """Told of each attempt that ended."""
        self.on_judged: Callable[[Episode, bool], None] | None = None
        """Told of each attempt that ended, and whether another one follows."""
        self._backend = backend
        self._store = store
        self._retries = retries or Retries()
        self.sink = guarded(sink)
        self._no_model = 0
        """Attempts in a row that failed by the model's server."""
        self._history = dict(history or {})
        """Attempts of earlier starts that failed and have no outcome yet: what they tell is not forgotten."""
        self._dice = random.Random(seed)  # noqa: S311  (spreads retries)
        self._stopping = asyncio.Event()
        self._finishing: asyncio.Future[int] | None = None
        """How many attempts had begun when it was told to stop."""
        self._ended_now = False
        """Whether it was told to end what runs, too."""

    @property
    def stopping(self) -> bool:
        """Whether nothing new is started any more."""
        return self._stopping.is_set()

    async def run(
        self, phase: str, tasks: Sequence[Task], *, round_: int = 0, samples: int = 1, priority: int = 0
    ) -> list[Episode]:
        """Run `samples` episodes of each task, less what the journal knows the outcome of; all outcomes come back."""
        groups = make_plan(self._store, phase, round_, tasks, samples)
        keys, left = _keys(phase, round_, tasks, samples), {key for group in groups for key in group.keys}
        known = (self._store.index.outcome(key) for key in keys if key not in left)
        self.sink.emit(begin_job(phase, round_, len(keys), (each for each in known if each is not None)))
        try:
            async with asyncio.TaskGroup() as work:
                await self._start_groups(work, groups, priority)
        except BaseExceptionGroup as errors:
            if (first := _first(errors)) is None:
                raise
            raise first from None
        finally:
            self.sink.emit(JobEnded(phase=phase, round=round_))
        outcomes = {each.key: each for each in await self._store.outcomes()}
        return [outcomes[key] for key in keys if key in outcomes]

    def stop(self) -> None:
        """Start nothing more; what has begun comes to its end, and what only waits to is given back."""
        if not self.stopping:
            self.sink.emit(RunStopping())
        self._stopping.set()
        self.limits.close()
        if self._finishing is None:
            self._finishing = self._backend.give_back()

    async def finishing(self) -> int:
        """How many attempts come to their end, once it was told to stop."""
        return 0 if self._finishing is None else await asyncio.shield(self._finishing)

    def stop_now(self) -> None:
        """End everything; what is ended so has no outcome, and a resume does it again."""
        self.stop()
        if not self._ended_now:
            self.sink.emit(RunStopping(now=True))
        self._ended_now = True
        for key, attempt in list(self.running):
            self._backend.stop(key, attempt, None)

    async def _start_groups(self, work: asyncio.TaskGroup, groups: Sequence[Group], priority: int) -> None:
        for group in groups:
            phase = group.keys[0].phase
            permit = GroupPermit(self.limits.groups, phase, group.ticket)
            if not await permit.enter(len(group.keys)):
                return
            work.create_task(self._group(group, permit, priority))

    async def _group(self, group: Group, permit: GroupPermit, priority: int) -> None:
        key = group.keys[0]
        if len(group.keys) > 1:  # of a group of one, the records of its episode say all
            self._store.write(GroupOpened(phase=key.phase, round=key.round, task=key.task, at=time.time()))
            self.sink.emit(GroupBegun(phase=key.phase, round=key.round, task=key.task))
        left, outcomes = len(group.keys), 0

        async def member(each: EpisodeKey) -> None:
            nonlocal left, outcomes
            inside = _Inside(permit)
            try:
                outcomes += await self._episode(each, group, inside, priority)
            finally:
                left -= 1
                # Before the permit is free, so that no more groups are open than there are permits.
                if not left and len(group.keys) > 1:
                    done = outcomes == len(group.keys)
                    why = "finished" if done else "stopped"
                    closed = GroupClosed(phase=key.phase, round=key.round, task=key.task, at=time.time(), why=why)
                    with contextlib.suppress(StoreError):  # where nothing can be written, the run ends by that
                        self._store.write(closed)
                    self.sink.emit(GroupEnded(phase=key.phase, round=key.round, task=key.task, finished=done))
                inside.leave()

        async with asyncio.TaskGroup() as work:
            for each in group.keys:
                work.create_task(member(each))

    async def _episode(self, key: EpisodeKey, group: Group, inside: _Inside, priority: int) -> bool:
        """Attempt after attempt, until there is an outcome or a stop; the group's permit is held already."""
        history = list(self._history.pop(key, ()))
        crashed = bool(history) and _is_crash(history[-1])
        verdict = Verdict(again=True, isolated=crashed)
        while True:
            episode = await self._attempt(key, group, priority, isolated=verdict.isolated)
            if episode is None:
                return False
            history.append(await self._examined(episode))
            self._stop_if_no_model(episode)
            verdict = judge(history, self._retries, alone=verdict.isolated, dice=self._dice)
            self._record(episode, history[-1], verdict)
            if verdict.seal is not None:
                return True
            if not verdict.again or self.stopping or being_cancelled():
                return False
            _log.info(
                "%s: %s; again in %.1f s", name_of(episode.key, episode.attempt), episode.score.reason, verdict.pause
            )
            inside.leave()
            await self._pause(verdict.pause)
            if not await inside.enter():
                return False

    def _record(self, episode: Episode, judged: Episode, verdict: Verdict) -> None:
        """Write down what became of an attempt, and tell who wants to know."""
        if verdict.seal is not None:
            outcome = episode if verdict.seal is judged else verdict.seal  # as its own files have it
            self._store.write(Sealed(episode=outcome, epoch=self._store.epoch))
            failure = outcome.failure.failure_class if outcome.failure else None
            score = outcome.score.value
            self.sink.emit(EpisodeSealed(key=outcome.key, attempt=outcome.attempt, score=score, failure=failure))
        else:
            self._store.write(Failed(episode=judged, epoch=self._store.epoch, retry_in_s=verdict.pause))
            if verdict.again:
                failure = judged.failure.failure_class if judged.failure else None
                self.sink.emit(
                    AttemptRetried(
                        key=judged.key,
                        attempt=judged.attempt,
                        failure=failure,
                        reason=judged.score.reason,
                        pause_s=verdict.pause,
                    )
                )
        if self.on_judged is not None:
            self.on_judged(episode, verdict.again)
        if self.on_ended is not None:
            self.on_ended(episode)

    async def _examined(self, episode: Episode) -> Episode:
        """An attempt as it is judged: that its desktop died is held against nobody where others died with it."""
        self.deaths.hear_attempt(episode, time.monotonic())
        if not is_evidence(episode):
            return episode
        if self.running:
            try:
                await asyncio.sleep(HEARD_S)  # whoever held another one may not have said so yet
            except asyncio.CancelledError:  # the run ends: nobody judges it, but what it has spent counts
                known = doubt(acquit(episode, self.deaths.beside(episode.desktop)))
                with contextlib.suppress(StoreError):
                    self._store.write(Failed(episode=known, epoch=self._store.epoch))
                raise
        return acquit(episode, self.deaths.beside(episode.desktop))

    def _stop_if_no_model(self, episode: Episode) -> None:
        """Where the model's server answers nobody, no other episode shall be spent on it."""
        failure = episode.failure
        if failure is None or failure.failure_class is not FailureClass.MODEL:
            self._no_model = 0
            return
        self._no_model += 1
        forbidden = failure.kind == ModelForbidden.__name__
        if forbidden or self._no_model > max(_NO_MODEL, 2 * self.limits.episodes.most):
            self._store.write(Failed(episode=episode, epoch=self._store.epoch))
            self.stop()  # whoever has just got this one's permit asks for nothing any more
            many = "" if forbidden else f"{self._no_model} attempts in a row failed by the model's server; the last: "
            raise ModelError(f"{many}{failure.message}; the run stops here: mend that, and resume it")

    async def _pause(self, seconds: float) -> None:
        """Sleep, but no longer than the run goes on."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _attempt(self, key: EpisodeKey, group: Group, priority: int, *, isolated: bool) -> Episode | None:
        """One attempt, under its permit; None where the run is stopped before it has begun."""
        asked = time.monotonic()
        permits = self.limits.episodes
        if not await permits.acquire(key.phase, group.ticket):
            return None
        try:
            waited = round(time.monotonic() - asked, 5)
            attempt = await self._store.next_attempt(key)
            if self.stopping:  # that may have taken a while
                return None
            return await self._dispatched(
                Order(key=key, attempt=attempt, task=group.task, priority=priority, isolated=isolated, waited_s=waited)
            )
        finally:
            permits.release(key.phase)

    async def _dispatched(self, order: Order) -> Episode | None:
        name = (order.key, order.attempt)
        self._store.write(Started(key=order.key, attempt=order.attempt, epoch=self._store.epoch, at=time.time()))
        started = self.running[name] = time.time()
        key, attempt = name
        self.sink.emit(AttemptStarted(key=key, attempt=attempt, waited_s=order.waited_s, isolated=order.isolated))
        run = asyncio.ensure_future(self._backend.run(order))
        episode = None
        try:
            episode = await asyncio.shield(run)
        except WorkerLost as error:
            episode = _lost(order, error, started)
        except asyncio.CancelledError:
            if not being_cancelled():
                raise
            episode = await self._end_under_way(order, run)
        finally:
            if not run.done():
                run.cancel()
                await asyncio.wait((run,))
            del self.running[name]
            self.sink.emit(AttemptDropped(key=key, attempt=attempt) if episode is None else AttemptEnded.of(episode))
        return episode

    async def _end_under_way(self, order: Order, run: asyncio.Future[Episode | None]) -> Episode | None:
        """The run ends under an attempt: have it end, so that it is known what it has spent; not for long."""
        wanted = not run.done() and not self._ended_now and not self._store.failed.done()
        if wanted and self._backend.stop(order.key, order.attempt, None):
            await asyncio.wait((run,), timeout=_ENDING_S)
        if run.cancelled() or not run.done() or run.exception() is not None:
            raise asyncio.CancelledError
        return run.result()


class _Inside:
    """One member's share in its group's permit: left once, however the episode ends."""

    def __init__(self, permit: GroupPermit) -> None:
        self._permit = permit
        self._inside = True

    async def enter(self) -> bool:
        self._inside = await self._permit.enter()
        return self._inside

    def leave(self) -> None:
        if self._inside:
            self._inside = False
            self._permit.leave()


def _lost(order: Order, error: WorkerLost, started: float) -> Episode:
    """The record of an attempt whose process could not make one."""
    failure = Failure.of(error)
    return Episode(
        key=order.key,
        attempt=order.attempt,
        stop=StopReason.FAILURE,
        score=Score(value=None, reason=f"{failure.failure_class}: {failure.message}"),
        failure=failure,
        domain=order.task.domain,
        started_at=started,
        ended_at=time.time(),
        seconds={Stage.PERMIT: order.waited_s},
    )


def _keys(phase: str, round_: int, tasks: Sequence[Task], samples: int) -> list[EpisodeKey]:
    return [
        EpisodeKey(phase=phase, round=round_, task=task.id, sample=sample)
        for task in tasks
        for sample in range(samples)
    ]


def _is_crash(episode: Episode) -> bool:
    return episode.failure is not None and episode.failure.failure_class is FailureClass.WORKER


def _first(errors: BaseExceptionGroup[BaseException]) -> DeskrollError | None:
    """The error that says most: whatever stopped the run, not what followed from it."""
    flat: list[DeskrollError] = []
    stack: list[BaseException] = [errors]
    while stack:
        error = stack.pop()
        if isinstance(error, BaseExceptionGroup):
            stack.extend(error.exceptions)
        elif isinstance(error, DeskrollError):
            flat.append(error)
        else:
            return None  # a bug: it must be seen as it is
    telling = StoreError | BackendLost | BackgroundLost | ConfigError
    return next((each for each in flat if isinstance(each, telling)), flat[0])
