"""Engine: what all jobs of a run share while they run: backend, journal, permits, counts, and who died when.

Guarantees: limits hold over all jobs together; every attempt that was ordered is in the journal before it runs, and
what it has spent afterwards, also where an error ends its job under it, as long as its process answers. One job of a
name runs at a time; the end of one leaves the others alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from deskroll.errors import ConfigError, DeskrollError, StoreError, WorkerLost
from deskroll.rollout.backends import Backend
from deskroll.rollout.cancelled import being_cancelled
from deskroll.rollout.deaths import HEARD_S, Deaths
from deskroll.rollout.job import Job
from deskroll.rollout.job_run import JobRun
from deskroll.rollout.limits import Limits
from deskroll.rollout.orders import AttemptName, Order
from deskroll.rollout.retry import acquit, doubt, is_evidence
from deskroll.rollout.spec import Definition
from deskroll.rollout.tally import Tally
from deskroll.store import RunStore
from deskroll.store.journal import Failed, Started
from deskroll.types import Episode, EpisodeKey, EventSink, Failure, Score, Stage, StopReason, Task, guarded

_ENDING_S = 10.0
"""How long an attempt may take to end when its job ends under it."""
Prepare = Callable[[Job, Sequence[Task]], Awaitable[None]]
"""Checks tasks of a job and makes ready what they need, before they are planned."""


class Engine:
    """Runs jobs on a backend and writes their outcomes to a store."""

    def __init__(
        self,
        backend: Backend,
        store: RunStore,
        limits: Limits,
        *,
        sink: EventSink | None = None,
        history: Mapping[EpisodeKey, Sequence[Episode]] | None = None,
        seed: int | None = None,
    ) -> None:
        self.backend = backend
        self.store = store
        self.limits = limits
        self.sink = guarded(sink)
        self.tally = Tally()
        self.deaths = Deaths()
        self.jobs: dict[str, JobRun] = {}
        """Those that run, by their names."""
        self.running: dict[AttemptName, float] = {}
        """Attempts that were handed to the backend, and when."""
        self.on_judged: list[Callable[[Episode, bool], None]] = []
        """Told of each attempt that ended, and whether another one follows."""
        self.tickets = itertools.count()
        """One number for each group, in the order in which they were planned, whatever their job."""
        self.history = dict(history or {})
        """Attempts of earlier starts that failed and have no outcome yet: what they tell is not forgotten."""
        self.dice = random.Random(seed)  # noqa: S311  (spreads retries)
        self.stopping = False
        """Whether nothing new is started any more."""
        self._failure: DeskrollError | None = None

    def run(self, job: Job, prepare: Prepare | None = None) -> JobRun:
        """Start a job: it runs from now on, whether or not somebody looks at what comes of it.

        Where the engine was told to stop, it ends at once, and nothing of it is planned.
        """
        if self._failure is not None:
            raise self._failure
        if job.name in self.jobs:
            raise ConfigError(f"job {job.name!r} runs already; wait for its end, or give this one another name")
        definition = Definition.of(job.spec, job.folder)
        self.backend.define(definition)
        self.limits.open(job.name)
        run = JobRun(job, self, definition.digest, prepare or _prepare_nothing)
        if not self.stopping:
            self.jobs[job.name] = run
        run.start(skip=self.stopping)
        return run

    def stop(self, *, now: bool = False) -> None:
        """Start nothing more, of any job; `now`: end what runs, too."""
        self.stopping = True
        for job in list(self.jobs.values()):
            job.stop(now=now)

    def fail(self, error: DeskrollError) -> None:
        """Something that all jobs need is gone: each ends with this error."""
        self._failure = self._failure or error
        for job in list(self.jobs.values()):
            job.fail(error)

    async def close(self) -> None:
        """End whatever still runs."""
        await asyncio.gather(*(job.cancel() for job in list(self.jobs.values())))

    async def dispatch(self, order: Order, *, wanted: Callable[[], bool]) -> Episode | None:
        """Have one attempt run; None: it was given back. Where its job ends under it, it is stopped if still wanted."""
        name = (order.key, order.attempt)
        self.store.write(Started(key=order.key, attempt=order.attempt, epoch=self.store.epoch, at=time.time()))
        started = self.running[name] = time.time()
        run = asyncio.ensure_future(self.backend.run(order))
        try:
            return await asyncio.shield(run)
        except WorkerLost as error:
            return _lost(order, error, started)
        except asyncio.CancelledError:
            if not being_cancelled():
                raise
            return await self._end_under_way(order, run, wanted=wanted())
        finally:
            if not run.done():
                run.cancel()
                await asyncio.wait((run,))
            del self.running[name]

    async def _end_under_way(
        self, order: Order, run: asyncio.Future[Episode | None], *, wanted: bool
    ) -> Episode | None:
        """A job ends under an attempt: have it end, so that it is known what it has spent; not for long."""
        wanted = wanted and not run.done() and not self.store.failed.done()
        if wanted and self.backend.stop(order.key, order.attempt, None):
            await asyncio.wait((run,), timeout=_ENDING_S)
        if run.cancelled() or not run.done() or run.exception() is not None:
            raise asyncio.CancelledError
        return run.result()

    async def examine(self, episode: Episode) -> Episode:
        """An attempt as it is judged: that its desktop died is held against nobody where others died with it."""
        self.deaths.hear_attempt(episode, time.monotonic())
        if not is_evidence(episode):
            return episode
        if self.running:
            try:
                await asyncio.sleep(HEARD_S)  # whoever held another one may not have said so yet
            except asyncio.CancelledError:  # its job ends: nobody judges it, but what it has spent counts
                known = doubt(acquit(episode, self.deaths.beside(episode.desktop)))
                with contextlib.suppress(StoreError):
                    self.store.write(Failed(episode=known, epoch=self.store.epoch))
                raise
        return acquit(episode, self.deaths.beside(episode.desktop))


async def _prepare_nothing(job: Job, tasks: Sequence[Task]) -> None:
    pass


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
