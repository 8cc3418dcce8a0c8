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
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from deskroll.errors import ConfigError, DeskrollError, StoreError, WorkerLost
from deskroll.events import AttemptDropped, AttemptEnded, AttemptStarted, EventSink, RunStopping, guarded
from deskroll.rollout.backends import Backend
from deskroll.rollout.cancelled import being_cancelled
from deskroll.rollout.deaths import HEARD_S, Deaths
from deskroll.rollout.limits import Limits
from deskroll.rollout.orders import AttemptName, Order
from deskroll.rollout.retry import acquit, doubt, is_evidence
from deskroll.rollout.spec import Definition
from deskroll.store import RunStore
from deskroll.store.index import GroupKey
from deskroll.store.journal import Failed, Started
from deskroll.types import Episode, EpisodeKey, Failure, Record, Score, Stage, StopReason

SPECS = 32
"""So many specs are kept ready; more only where more jobs run. Those that ran longest ago are forgotten first."""
_ENDING_S = 10.0
"""How long an attempt may take to end when its job ends under it."""


class JobStatus(Record, frozen=True, omit_defaults=False):
    """How a job stands."""

    name: str
    group_size: int
    priority: int
    round: int
    """The latest one."""
    planned: int
    """Episodes, as far as its tasks have come."""
    done: int
    """Episodes with an outcome, those of earlier starts included."""
    in_flight: int
    stopping: bool


class Wanted(Protocol):
    """Whoever has an attempt run."""

    @property
    def stopping(self) -> bool:
        """Whether it is not to begin any more."""

    @property
    def ended_now(self) -> bool:
        """Whether its job was told to end what runs, too."""


class RunningJob(Protocol):
    """A job that runs."""

    def status(self) -> JobStatus:
        """How it stands."""

    def stop(self, *, now: bool = False, by_others: bool = False) -> None:
        """Start nothing more; `now`: end what runs, too; `by_others`: it is not the program's own wish."""

    def fail(self, error: BaseException) -> None:
        """End with this error."""

    async def cancel(self) -> None:
        """End, and wait until nothing of it runs."""


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
        filled: Counter[GroupKey] | None = None,
        seed: int | None = None,
    ) -> None:
        self.backend = backend
        self.store = store
        self.limits = limits
        self.sink = guarded(sink)
        self.deaths = Deaths()
        self.jobs: dict[str, RunningJob] = {}
        """Those that run, by their names."""
        self._specs: dict[str, int] = {}
        """How many jobs run with each spec that the backend knows, by its digest; the last to come or go is last."""
        self.running: dict[AttemptName, float] = {}
        """Attempts that were handed to the backend, and when."""
        self.on_judged: list[Callable[[Episode, bool], None]] = []
        """Told of each attempt that ended, and whether another one follows."""
        self.tickets = itertools.count()
        """One number for each group, in the order in which they were planned, whatever their job."""
        self.history = dict(history or {})
        """Attempts of earlier starts that failed and have no outcome yet: what they tell is not forgotten."""
        self.filled: Counter[GroupKey] = Counter() if filled is None else filled
        """How often members of each open group were sampled anew, where any was."""
        self.dice = random.Random(seed)  # noqa: S311  (spreads retries)
        self.stopping = False
        """Whether nothing new is started any more."""
        self.stopped_by_others = False
        """Whether that is so by somebody else's wish alone, and not by the program's own."""
        self._ended_now = False
        self._failure: DeskrollError | None = None

    def begin(self, name: str, job: RunningJob, samples: int) -> bool:
        """A job of groups of so many begins; False: the engine was told to stop, and nothing begins any more."""
        if self._failure is not None:
            raise self._failure
        if name in self.jobs:
            raise ConfigError(f"job {name!r} runs already; wait for its end, or give this one another name")
        if not self.stopping:
            self.limits.open(name, samples)
            self.jobs[name] = job
        return not self.stopping

    def define(self, definition: Definition) -> None:
        """A job is about to order attempts with this."""
        self._specs[definition.digest] = self._specs.pop(definition.digest, 0) + 1
        self.backend.define(definition)

    def release(self, definition: Definition) -> None:
        """A job that ordered attempts with this has ended."""
        self._specs[definition.digest] = self._specs.pop(definition.digest) - 1
        idle = [digest for digest, jobs in self._specs.items() if not jobs]
        for digest in idle[: max(0, len(self._specs) - SPECS)]:
            del self._specs[digest]
            self.backend.forget(digest)

    def stop(self, *, now: bool = False, by_others: bool = False) -> None:
        """Start nothing more, of any job; `now`: end what runs, too; `by_others`: it is not the program's own wish."""
        self.stopped_by_others = by_others and (self.stopped_by_others or not self.stopping)
        if now > self._ended_now or not self.stopping:
            self.sink.emit(RunStopping(now=now))
        self.stopping, self._ended_now = True, self._ended_now or now
        for job in list(self.jobs.values()):
            job.stop(now=now, by_others=by_others)

    def fail(self, error: DeskrollError) -> None:
        """Something that all jobs need is gone: each ends with this error."""
        self._failure = self._failure or error
        for job in list(self.jobs.values()):
            job.fail(error)

    async def close(self) -> None:
        """End whatever still runs; whoever waits for it is told."""
        self._failure = self._failure or DeskrollError("the runtime is closed: open it again, and its run goes on")
        jobs = list(self.jobs.items())
        for name, job in jobs:
            job.fail(DeskrollError(f"the runtime was closed, and job {name!r} with it; a resume does the rest"))
        await asyncio.gather(*(job.cancel() for _, job in jobs))

    async def dispatch(self, order: Order, wanted: Wanted) -> Episode | None:
        """Have one attempt run; None: it was given back, or was not wanted any more before it began."""
        key, attempt = name = (order.key, order.attempt)
        self.store.write(Started(key=key, attempt=attempt, epoch=self.store.epoch, at=time.time()))
        started, episode = time.time(), None

        async def carry() -> Episode | None:
            if wanted.stopping:
                return None
            self.running[name] = started  # in the same step in which the backend gets it: whoever stops it can
            return await self.backend.run(order)

        self.sink.emit(AttemptStarted(key=key, attempt=attempt, waited_s=order.waited_s, isolated=order.isolated))
        carried = asyncio.ensure_future(carry())
        try:
            episode = await asyncio.shield(carried)
        except WorkerLost as error:
            episode = _lost(order, error, started)
        except asyncio.CancelledError:
            if not being_cancelled():
                raise
            episode = await self._end_under_way(order, carried, wanted=not wanted.ended_now)
        finally:
            if not carried.done():
                carried.cancel()
                await asyncio.wait((carried,))
            self.running.pop(name, None)
            self.sink.emit(AttemptDropped(key=key, attempt=attempt) if episode is None else AttemptEnded.of(episode))
        return episode

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
