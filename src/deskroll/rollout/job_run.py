"""JobRun: a job that runs: what its source gives is planned, its groups run under their permits, and are handed out.

Guarantees: every planned episode ends with exactly one sealed outcome, unless the job is stopped before that; what was
stopped has none, and a resume does it. Whatever ends a job, the jobs beside it go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence

from deskroll.errors import (
    InputError,
    JobStopped,
    first_error,
    plain,
)
from deskroll.events import JobEnded, JobStarted
from deskroll.rollout.engine import Engine, JobStatus
from deskroll.rollout.group import GroupResult
from deskroll.rollout.group_run import GroupRun
from deskroll.rollout.job import Batch, Job
from deskroll.rollout.job_state import JobState
from deskroll.rollout.limits import GroupPermit, Ticket
from deskroll.rollout.plan import Group, is_given_up, left_to_do, make_plan, members
from deskroll.rollout.spec import Definition, EpisodeSpec
from deskroll.rollout.tally import batch_planned
from deskroll.store.index import Outcome
from deskroll.store.journal import GroupClosed
from deskroll.types import Episode, EpisodeKey, GroupEnd

_log = logging.getLogger(__name__)

Prepare = Callable[[Job, Batch], Awaitable[str]]
"""Checks tasks of a job and makes ready what they need, before they are planned; the digest of the spec, if noted."""


Serve = Callable[[EpisodeSpec], Awaitable[EpisodeSpec]]
"""The spec with models that answer."""


async def prepare_nothing(job: Job, batch: Batch) -> str:
    """For tasks that are ready."""
    return ""


async def serve_nothing(spec: EpisodeSpec) -> EpisodeSpec:
    """For models that answer already."""
    return spec


def start_job(engine: Engine, job: Job, prepare: Prepare = prepare_nothing, serve: Serve = serve_nothing) -> JobRun:
    """Start a job: it runs from now on, whether or not somebody looks at what comes of it.

    Where the engine was told to stop, it ends at once, and nothing of it is planned.
    """
    run = JobRun(job, engine, prepare, serve)
    run.start(skip=not engine.begin(job.name, run, job.group_size))
    return run


class JobRun:
    """Made by `start_job`. `async for group in run` yields each group when it has finished; leaving it cancels."""

    def __init__(self, job: Job, engine: Engine, prepare: Prepare, serve: Serve) -> None:
        self.job = job
        self._state = JobState(job, engine)
        self._serving = self._defined = False
        self._engine = engine
        self._prepare = prepare
        self._serve = serve
        self._results: asyncio.Queue[GroupResult | None] = asyncio.Queue()
        self._groups: dict[tuple[int, str], GroupRun] = {}
        """Those that have their permits, by round and task."""
        self._coming: set[tuple[int, str]] = set()
        """Those that have come and not ended."""
        self._unwanted: dict[tuple[int, str], str] = {}
        """Those that were given up before they had their permits, and why."""
        self._earlier: dict[EpisodeKey, Episode] = {}
        """Outcomes of this job that were there before, where somebody had to look, until they are handed out."""
        self._rounds: dict[int, set[str]] = {}
        """The tasks of each round, as far as they have come: as many names as the store's index has of them."""
        self._round = job.round
        self._waiting = 0
        """Groups that wait for their permits."""
        self._granted = asyncio.Event()
        self._stopped_by_others = False
        """Whether it is stopped by somebody else's wish alone."""
        self._source_ended = False
        self._wrong: InputError | None = None
        """Why the last batch cannot be run; raised in the source, which may go on without it."""
        self._error: BaseException | None = None
        self._task: asyncio.Task[None] | None = None
        self._iterated = False

    # --- for whoever runs it ---

    async def __aiter__(self) -> AsyncIterator[GroupResult]:
        """Each group when it has finished, those first that earlier starts did; its error, if it ended by one."""
        if self._iterated:
            raise RuntimeError(f"the groups of job {self.job.name!r} are handed out once")
        self._iterated = True
        try:
            while (group := await self._results.get()) is not None:
                yield group
        finally:
            await self.cancel()
        if self._error is not None:
            raise self._error

    async def outcomes(self) -> list[Episode]:
        """Wait for its end; every outcome of its rounds, in the order of the plan."""
        async for _ in self:
            pass
        return await self.outcomes_so_far()

    async def outcomes_so_far(self) -> list[Episode]:
        """Every outcome of its rounds that is there by now, in the order of the plan."""
        store = self._engine.store
        known = {each.key: each for each in await store.outcomes()}
        planned = [each for round_ in self._rounds for each in store.index.plan(self.job.name, round_).values()]
        return [known[key] for plan in planned for key in plan.keys() if key in known]  # noqa: SIM118  (it is no dict)

    @property
    def definition(self) -> Definition:
        """What its orders name."""
        return self._state.definition

    @property
    def stopping(self) -> bool:
        """Whether nothing new is started any more."""
        return self._state.stopping

    @property
    def unstarted(self) -> int:
        """How many episodes have no outcome and no attempt that runs."""
        state = self._state
        return state.planned - state.done - len(state.running)

    def status(self) -> JobStatus:
        """How it stands."""
        return JobStatus(
            name=self.job.name,
            group_size=self.job.group_size,
            priority=self.job.priority,
            round=self._round,
            planned=self._state.planned,
            done=self._state.done,
            in_flight=len(self._state.running),
            stopping=self.stopping,
        )

    def stop(self, *, now: bool = False, by_others: bool = False) -> None:
        """Start nothing more; what has begun comes to its end, and what only waits to is given back.

        `now`: end what runs, too; it has no outcome then, and a resume does it again. `by_others`: it is not the
        program's own wish, and whoever iterates over it is told by a `JobStopped`.
        """
        if self._task is None or self._task.done():
            return  # another job may have its name by now
        self._stopped_by_others = by_others and (self._stopped_by_others or not self.stopping)
        if self._serving:
            self._task.cancel()  # its models need not answer any more, and nothing is planned
        self._state.stop(now=now)

    async def finishing(self) -> int:
        """How many attempts come to their end, once it was told to stop; none has, since they were counted."""
        state = self._state
        if state.finishing is None:
            return 0
        done, kept = state.done, await asyncio.shield(state.finishing)
        while done != state.done:
            done, kept = state.done, await self._engine.backend.give_back(set(state.running))
        return kept

    def give_up(self, round_: int, task: str, why: str) -> None:
        """A group is not wanted any more: what has not ended of it is sealed as given up, and it is handed out."""
        if (group := self._groups.get((round_, task))) is not None:
            group.give_up(why)
        elif (round_, task) in self._coming or task not in self._rounds.get(round_, ()):  # else it has ended
            self._unwanted[round_, task] = why

    def fail(self, error: BaseException) -> None:
        """End it with this error."""
        if self._task is not None and not self._task.done():
            self._error = self._error or error
            self._task.cancel()

    async def cancel(self) -> None:
        """End it, if it still runs, and wait until nothing of it does."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait((self._task,))

    # --- the work ---

    def start(self, *, skip: bool) -> None:
        """Begin; `skip`: and end, with nothing done."""
        if skip:
            if self._engine.stopped_by_others:
                self._error = self._stopped()
            self._results.put_nowait(None)
        else:
            self._engine.sink.emit(JobStarted(phase=self.job.name, round=self.job.round))
            self._task = asyncio.create_task(self._carry_out(), name=f"job {self.job.name}")
            self._task.add_done_callback(self._end)  # and not by the task itself, which may be ended before it begins

    async def _carry_out(self) -> None:
        try:
            await self._work()
        except asyncio.CancelledError:
            pass  # it was wanted; where something failed, that is told
        except BaseException as error:  # whoever iterates is told  # noqa: BLE001
            self._error = self._error or (first_error(error) if isinstance(error, BaseExceptionGroup) else error)

    def _end(self, task: asyncio.Task[None]) -> None:
        del self._engine.jobs[self.job.name]
        if self._defined:
            self._engine.release(self.definition)
        if self._stopped_by_others and not (self._source_ended and self._state.done == self._state.planned):
            self._error = self._error or self._stopped()
        self._engine.sink.emit(JobEnded(phase=self.job.name, round=self._round))
        self._results.put_nowait(None)
        if self._error is not None and not self._iterated:
            _log.error("job %s ended: %s: %s", self.job.name, type(self._error).__name__, plain(str(self._error)))

    def _stopped(self) -> JobStopped:
        tasks = self.job.source if isinstance(self.job.source, Sequence) else ()
        planned = max(self._state.planned, len(tasks) * self.job.group_size)
        done = f"{self._state.done} of {planned} episodes" if planned else "nothing"
        return JobStopped(
            f"job {plain(self.job.name)!r} was stopped by somebody else (deskroll status --stop): {done} done. That is "
            f"kept in {self._engine.store.storage.root}: open a Runtime on that store again and run the job on it, and "
            "the rest is done"
        )

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as work, contextlib.aclosing(self._batches()) as batches:
            async for batch in batches:
                groups = await self._plan(batch)
                tickets = [(-self.job.priority, next(self._engine.tickets)) for _ in groups]
                for group, ticket in zip(groups, tickets, strict=True):
                    # As many wait as may be granted at once: else a younger job's group would slip in between.
                    await self._wait_until_fewer(self._engine.limits.groups.most)
                    if self.stopping:
                        return
                    self._waiting += 1
                    work.create_task(self._run_group(group, batch.round, ticket))
                await self._wait_until_fewer(1)  # the next batch is asked for when all of this one has its permits

    async def _wait_until_fewer(self, groups: int) -> None:
        """Wait until fewer groups than that wait for their permits."""
        while self._waiting >= groups:
            self._granted.clear()
            await self._granted.wait()

    async def _define(self) -> None:
        """Wait for its models to answer, and have the backend know what orders will name."""
        self._serving = True
        spec = await self._serve(self.job.spec)
        self._serving = False
        self._state.definition = Definition.of(spec, self.job.folder, self.definition.plug_ins)
        self._engine.define(self.definition)
        self._defined = True

    async def _batches(self) -> AsyncGenerator[Batch, None]:
        """What the source gives, until it ends or the job is stopped; a list is planned in any case."""
        if isinstance(self.job.source, Sequence):
            yield Batch(tasks=tuple(self.job.source), round=self.job.round, whole=True)
            if self._wrong is not None:
                raise self._wrong
            self._source_ended = True
            return
        source, stopping = aiter(self.job.source), asyncio.ensure_future(self._state.stopped.wait())
        try:
            while True:
                wrong, self._wrong = self._wrong, None
                following = asyncio.ensure_future(_next(source, wrong))
                try:
                    await asyncio.wait((following, stopping), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not following.done():
                        following.cancel()
                        await asyncio.wait((following,))
                if following.cancelled():
                    return
                if (batch := following.result()) is None:
                    self._source_ended = True
                    return
                yield batch
        finally:
            stopping.cancel()
            if isinstance(source, AsyncGenerator):
                await source.aclose()

    async def _plan(self, batch: Batch) -> list[Group]:
        """Journal what a batch brings; the groups of which something is left to do."""
        engine, name, samples = self._engine, self.job.name, self.job.group_size
        first = batch.round not in self._rounds
        self._refuse_twice(batch)
        left = left_to_do(engine.store.index, name, batch.round, batch.tasks, samples)
        if left and not self._defined and not self.stopping:  # one that is stopped is planned, and no more
            await self._define()  # before anything is prepared or written: without models, nothing of it is begun
        try:
            spec = await self._prepare(self.job, batch)
        except InputError as wrong:
            self._wrong = wrong
            for task in batch.tasks:
                self._forget(batch.round, task.id)
            return []
        groups = make_plan(engine.store, name, batch.round, batch.tasks, samples, whole=batch.whole, spec=spec)
        self._round = batch.round
        before = [outcome for group in groups for outcome in self._outcomes_before(group, batch.round)]
        self._state.planned += len(groups) * samples
        self._state.done += len(before)
        own = sum(engine.store.index.written_here(outcome.key) for outcome in before)
        engine.sink.emit(batch_planned(name, batch.round, len(groups) * samples, before, own=own, first=first))
        for group in groups:
            if not group.keys:
                self._forget(batch.round, group.task.id)
                end, closed_at = self._end_before(group, batch.round)
                await self._hand_out(group, batch.round, end, closed_at)
        return [group for group in groups if group.keys]

    def _refuse_twice(self, batch: Batch) -> None:
        known = self._rounds.setdefault(batch.round, set())
        for task in batch.tasks:
            if task.id in known:
                raise InputError(
                    f"task {plain(task.id)!r} comes twice in round {batch.round} of job {self.job.name!r}: each id is "
                    "there once in a round, and may come again in another one"
                )
            known.add(task.id)
            self._coming.add((batch.round, task.id))

    def _forget(self, round_: int, task: str) -> None:
        """A group has ended, or is not run at all: giving it up means nothing any more."""
        self._coming.discard((round_, task))
        self._groups.pop((round_, task), None)
        self._unwanted.pop((round_, task), None)

    def _outcomes_before(self, group: Group, round_: int) -> list[Outcome]:
        """Outcomes of a group's members that are not to be run."""
        index, keys = self._engine.store.index, set(group.keys)
        known = (index.outcome(key) for key in self._members(group, round_) if key not in keys)
        return [outcome for outcome in known if outcome is not None]

    def _end_before(self, group: Group, round_: int) -> tuple[GroupEnd, float]:
        """Why and when a group was closed that an earlier start finished; now, where it died before it said so."""
        name, task, store = self.job.name, group.task.id, self._engine.store
        closed = store.index.groups.get((name, round_, task))
        if isinstance(closed, GroupClosed) and closed.end not in (None, GroupEnd.STOPPED):
            return closed.end, closed.at
        before, now = self._outcomes_before(group, round_), time.time()
        scores = [score for outcome in before if (score := outcome.points) is not None]
        size, given_up = self.job.group_size, sum(map(is_given_up, before))
        end = self.job.spec.policy.conclude(size, scores, size - len(scores) - given_up, given_up)
        store.write(GroupClosed(phase=name, round=round_, task=task, at=now, end=end))
        return end, now

    async def _hand_out(
        self, group: Group, round_: int, end: GroupEnd, at: float, outcomes: Mapping[EpisodeKey, Episode] | None = None
    ) -> None:
        """Give a group that has finished to whoever runs the job, with what was done of it before."""
        found, keys = outcomes or {}, self._members(group, round_)
        await self._look_up([key for key in keys if key not in found])
        episodes = tuple(found.get(key) or self._earlier.pop(key) for key in keys)
        self._results.put_nowait(
            GroupResult(
                phase=self.job.name, round=round_, task=group.task, episodes=episodes, end=end, closed_at=at,
                resumed=outcomes is None,
            )
        )  # fmt: skip

    async def _look_up(self, keys: Sequence[EpisodeKey]) -> list[Episode]:
        """Outcomes of earlier starts in full."""
        if any(key not in self._earlier for key in keys):
            known, rounds = await self._engine.store.outcomes(), {key.round for key in keys}
            self._earlier = {
                each.key: each for each in known if each.key.phase == self.job.name and each.key.round in rounds
            }  # and no more: a service has had many
        return [self._earlier[key] for key in keys]

    async def _run_group(self, group: Group, round_: int, ticket: Ticket) -> None:
        permit = GroupPermit(self._engine.limits.groups, self.job.name, ticket)
        try:
            entered = await permit.enter(len(group.keys))
            self._waiting -= 1
            self._granted.set()
            if not entered:
                return
            run = self._groups[round_, group.task.id] = GroupRun(group, self._state, permit, ticket)
            if (why := self._unwanted.get((round_, group.task.id))) is not None:
                run.give_up(why)
            await run.run(*await self._earlier_of(group, round_))
        finally:
            self._forget(round_, group.task.id)
            permit.abandon()
        if run.end is not GroupEnd.STOPPED:
            await self._hand_out(group, round_, run.end, run.closed_at, run.outcomes)

    async def _earlier_of(self, group: Group, round_: int) -> tuple[Sequence[Outcome], Sequence[float]]:
        """Outcomes of a group's members that earlier starts did, and how long these took, where that matters."""
        before = self._outcomes_before(group, round_)
        if not before or self.job.spec.policy.straggler_factor is None:
            return before, ()
        known = await self._look_up([each.key for each in before])
        return before, [each.ended_at - each.started_at for each in known if each.points is not None]

    def _members(self, group: Group, round_: int) -> list[EpisodeKey]:
        return members(self.job.name, round_, group.task.id, self.job.group_size)


async def _next(source: AsyncIterator[Batch], wrong: InputError | None) -> Batch | None:
    """What comes next; `wrong`: why the last one cannot be run, which is raised where a generator yielded it."""
    if wrong is None:
        return await anext(source, None)
    if not isinstance(source, AsyncGenerator):
        raise wrong
    try:
        found: Batch = await source.athrow(wrong)
    except StopAsyncIteration:
        return None
    return found
