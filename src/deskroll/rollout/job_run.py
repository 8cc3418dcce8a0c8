"""JobRun: a job that runs: its groups under their permits, its episodes attempt after attempt, its results in the end.

Guarantees: every planned episode ends with exactly one sealed outcome, unless the job is stopped before that; what was
stopped has none, and a resume does it. No permit is held while sleeping before a retry. Whatever ends a job, the jobs
beside it go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence

from deskroll.errors import (
    BackendLost,
    BackgroundLost,
    ConfigError,
    DeskrollError,
    FailureClass,
    FailureKind,
    InputError,
    JobStopped,
    ModelError,
    StoreError,
    plain,
)
from deskroll.events import AttemptRetried, EpisodeSealed, GroupBegun, GroupEnded, JobEnded, JobStarted
from deskroll.rollout.cancelled import being_cancelled
from deskroll.rollout.engine import Engine, JobStatus
from deskroll.rollout.group import GroupResult
from deskroll.rollout.job import Batch, Job
from deskroll.rollout.limits import GroupPermit, Ticket
from deskroll.rollout.orders import AttemptName, Order
from deskroll.rollout.plan import Group, left_to_do, make_plan
from deskroll.rollout.retry import Verdict, judge
from deskroll.rollout.spec import Definition, EpisodeSpec
from deskroll.rollout.tally import batch_planned
from deskroll.store.journal import Failed, GroupClosed, GroupOpened, Sealed
from deskroll.store.names import name_of
from deskroll.types import Episode, EpisodeKey

_log = logging.getLogger(__name__)
_NO_MODEL = 20
"""So many attempts in a row (or twice what is in flight) must fail by the model's server for the job to stop."""


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
    run.start(skip=not engine.begin(job.name, run))
    return run


class JobRun:
    """Made by `start_job`. `async for group in run` yields each group when it has finished; leaving it cancels."""

    def __init__(self, job: Job, engine: Engine, prepare: Prepare, serve: Serve) -> None:
        self.job = job
        self.definition = Definition.of(job.spec, job.folder)
        """What orders name by its digest: with the code as it is now, and where its models answer, once they do."""
        self._serving = self._defined = False
        self._engine = engine
        self._prepare = prepare
        self._serve = serve
        self._retries = job.spec.retries
        self._results: asyncio.Queue[GroupResult | None] = asyncio.Queue()
        self._earlier: dict[EpisodeKey, Episode] = {}
        """Outcomes of this job that were there before, where somebody had to look, until they are handed out."""
        self._rounds: dict[int, set[str]] = {}
        """The tasks of each round, as far as they have come: as many names as the store's index has of them."""
        self._round = job.round
        self._running: set[AttemptName] = set()
        self._planned = self._done = 0
        self._no_model = 0
        """Attempts in a row that failed by the model's server."""
        self._stopping = asyncio.Event()
        self._stopped_by_others = False
        """Whether that is so by somebody else's wish alone."""
        self._source_ended = False
        self._finishing: asyncio.Future[int] | None = None
        """How many attempts had begun when it was told to stop."""
        self.ended_now = False
        """Whether it was told to end what runs, too."""
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
    def stopping(self) -> bool:
        """Whether nothing new is started any more."""
        return self._stopping.is_set()

    @property
    def unstarted(self) -> int:
        """How many episodes have no outcome and no attempt that runs."""
        return self._planned - self._done - len(self._running)

    def status(self) -> JobStatus:
        """How it stands."""
        return JobStatus(
            name=self.job.name,
            group_size=self.job.group_size,
            priority=self.job.priority,
            round=self._round,
            planned=self._planned,
            done=self._done,
            in_flight=len(self._running),
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
        self._stopping.set()
        self._engine.limits.close(self.job.name)
        if self._finishing is None:
            self._finishing = self._engine.backend.give_back(set(self._running))
        if now:
            self.ended_now = True
            for key, attempt in list(self._running):
                self._engine.backend.stop(key, attempt, None)

    async def finishing(self) -> int:
        """How many attempts come to their end, once it was told to stop."""
        return 0 if self._finishing is None else await asyncio.shield(self._finishing)

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
            self._error = self._error or (_first(error) if isinstance(error, BaseExceptionGroup) else error)

    def _end(self, task: asyncio.Task[None]) -> None:
        del self._engine.jobs[self.job.name]
        if self._defined:
            self._engine.release(self.definition)
        if self._stopped_by_others and not (self._source_ended and self._done == self._planned):
            self._error = self._error or self._stopped()
        self._engine.sink.emit(JobEnded(phase=self.job.name, round=self._round))
        self._results.put_nowait(None)
        if self._error is not None and not self._iterated:
            _log.error("job %s ended: %s: %s", self.job.name, type(self._error).__name__, plain(str(self._error)))

    def _stopped(self) -> JobStopped:
        tasks = self.job.source if isinstance(self.job.source, Sequence) else ()
        planned = max(self._planned, len(tasks) * self.job.group_size)
        done = f"{self._done} of {planned} episodes" if planned else "nothing"
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
                    permit = GroupPermit(self._engine.limits.groups, self.job.name, ticket)
                    if not await permit.enter(len(group.keys)):
                        return
                    running = work.create_task(self._run_group(group, batch.round, permit, ticket))
                    running.add_done_callback(lambda _, permit=permit: permit.abandon())  # type: ignore[misc]

    async def _define(self) -> None:
        """Wait for its models to answer, and have the backend know what orders will name."""
        self._serving = True
        spec = await self._serve(self.job.spec)
        self._serving = False
        self.definition = Definition.of(spec, self.job.folder, self.definition.plug_ins)
        self._engine.define(self.definition)
        self._defined = True

    async def _batches(self) -> AsyncGenerator[Batch, None]:
        """What the source gives, until it ends or the job is stopped; a list is planned in any case."""
        if isinstance(self.job.source, Sequence):
            yield Batch(tasks=tuple(self.job.source), round=self.job.round, whole=True)
            self._source_ended = True
            return
        source, stopping = aiter(self.job.source), asyncio.ensure_future(self._stopping.wait())
        try:
            while True:
                following = asyncio.ensure_future(_next(source))
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
        spec = await self._prepare(self.job, batch)
        groups = make_plan(engine.store, name, batch.round, batch.tasks, samples, whole=batch.whole, spec=spec)
        self._round = batch.round
        todo = {key for group in groups for key in group.keys}
        done = (key for group in groups for key in _members(self.job, group, batch.round) if key not in todo)
        before = [outcome for key in done if (outcome := engine.store.index.outcome(key)) is not None]
        self._planned += len(groups) * samples
        self._done += len(before)
        own = sum(engine.store.index.written_here(outcome.key) for outcome in before)
        engine.sink.emit(batch_planned(name, batch.round, len(groups) * samples, before, own=own, first=first))
        for group in groups:
            if not group.keys:
                await self._hand_out(group, batch.round, {}, resumed=True)
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

    async def _hand_out(
        self, group: Group, round_: int, outcomes: Mapping[EpisodeKey, Episode], *, resumed: bool = False
    ) -> None:
        """Give a group that has finished to whoever runs the job, with what was done of it before."""
        keys = _members(self.job, group, round_)
        if any(key not in outcomes and key not in self._earlier for key in keys):
            known = await self._engine.store.outcomes()
            self._earlier = {each.key: each for each in known if each.key.phase == self.job.name}
        episodes = tuple(outcomes.get(key) or self._earlier.pop(key) for key in keys)
        self._results.put_nowait(
            GroupResult(phase=self.job.name, round=round_, task=group.task, episodes=episodes, resumed=resumed)
        )

    async def _run_group(self, group: Group, round_: int, permit: GroupPermit, ticket: Ticket) -> None:
        key, store = group.keys[0], self._engine.store
        if len(group.keys) > 1:  # of a group of one, the records of its episode say all
            store.write(GroupOpened(phase=key.phase, round=key.round, task=key.task, at=time.time()))
            self._engine.sink.emit(GroupBegun(phase=key.phase, round=key.round, task=key.task))
        left, outcomes = len(group.keys), dict[EpisodeKey, Episode]()

        async def member(each: EpisodeKey) -> None:
            nonlocal left
            inside = _Inside(permit)
            try:
                if (outcome := await self._run_episode(each, group, inside, ticket)) is not None:
                    outcomes[each] = outcome
            finally:
                left -= 1
                # Before the permit is free, so that no more groups are open than there are permits.
                if not left and len(group.keys) > 1:
                    done = len(outcomes) == len(group.keys)
                    why = "finished" if done else "stopped"
                    closed = GroupClosed(phase=key.phase, round=key.round, task=key.task, at=time.time(), why=why)
                    with contextlib.suppress(StoreError):  # where nothing can be written, the run ends by that
                        store.write(closed)
                    ended = GroupEnded(phase=key.phase, round=key.round, task=key.task, finished=done)
                    self._engine.sink.emit(ended)
                inside.leave()

        if len(group.keys) == 1:
            await member(key)
        else:
            async with asyncio.TaskGroup() as work:
                for each in group.keys:
                    work.create_task(member(each))
        if len(outcomes) == len(group.keys):
            await self._hand_out(group, round_, outcomes)

    async def _run_episode(self, key: EpisodeKey, group: Group, inside: _Inside, ticket: Ticket) -> Episode | None:
        """Attempt after attempt, until there is an outcome or a stop; the group's permit is held already."""
        history = list(self._engine.history.pop(key, ()))
        try:
            return await self._attempt_until_sealed(key, group, inside, ticket, history)
        finally:
            told = [each for each in history if not _is_stop(each)]
            if told and self._engine.store.index.outcome(key) is None:
                self._engine.history[key] = told  # for the next job that does it

    async def _attempt_until_sealed(
        self, key: EpisodeKey, group: Group, inside: _Inside, ticket: Ticket, history: list[Episode]
    ) -> Episode | None:
        verdict = Verdict(again=True, isolated=bool(history) and _is_crash(history[-1]))
        while True:
            episode = await self._attempt(key, group, ticket, isolated=verdict.isolated)
            if episode is None:
                return None
            history.append(await self._engine.examine(episode))
            self._stop_if_no_model(episode)
            verdict = judge(history, self._retries, alone=verdict.isolated, dice=self._engine.dice)
            outcome = self._record(episode, history[-1], verdict)
            if outcome is not None or not verdict.again or self.stopping or being_cancelled():
                return outcome
            _log.info(
                "%s: %s; again in %.1f s", name_of(episode.key, episode.attempt), episode.score.reason, verdict.pause
            )
            inside.leave()
            await self._pause(verdict.pause)
            if not await inside.enter():
                return None

    def _record(self, episode: Episode, judged: Episode, verdict: Verdict) -> Episode | None:
        """Write down what became of an attempt, and tell who wants to know; the outcome, where it is one."""
        engine, outcome = self._engine, None
        if verdict.seal is not None:
            outcome = episode if verdict.seal is judged else verdict.seal  # as its own files have it
            engine.store.write(Sealed(episode=outcome, epoch=engine.store.epoch))
            self._done += 1
            failure = outcome.failure.failure_class if outcome.failure else None
            score = outcome.score.value
            engine.sink.emit(EpisodeSealed(key=outcome.key, attempt=outcome.attempt, score=score, failure=failure))
        else:
            engine.store.write(Failed(episode=judged, epoch=engine.store.epoch, retry_in_s=verdict.pause))
            if verdict.again:
                engine.sink.emit(AttemptRetried.of(judged, verdict.pause))
        for tell in engine.on_judged:
            tell(episode, verdict.again)
        return outcome

    def _stop_if_no_model(self, episode: Episode) -> None:
        """Where the model's server answers nobody, no other episode shall be spent on it."""
        failure = episode.failure
        if failure is None or failure.failure_class is not FailureClass.MODEL:
            self._no_model = 0
            return
        self._no_model += 1
        forbidden = failure.kind is FailureKind.MODEL_FORBIDDEN
        if forbidden or self._no_model > max(_NO_MODEL, 2 * self._engine.limits.episodes.most):
            self._engine.store.write(Failed(episode=episode, epoch=self._engine.store.epoch))
            self.stop()  # whoever has just got this one's permit asks for nothing any more
            many = "" if forbidden else f"{self._no_model} attempts in a row failed by the model's server; the last: "
            raise ModelError(f"{many}{failure.message}; the run stops here: mend that, and resume it")

    async def _pause(self, seconds: float) -> None:
        """Sleep, but no longer than the job goes on."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _attempt(self, key: EpisodeKey, group: Group, ticket: Ticket, *, isolated: bool) -> Episode | None:
        """One attempt, under its permit; None where the job is stopped before it has begun."""
        asked = time.monotonic()
        permits = self._engine.limits.episodes
        if not await permits.acquire(key.phase, ticket):
            return None
        try:
            waited = round(time.monotonic() - asked, 5)
            attempt = await self._engine.store.next_attempt(key)
            if self.stopping:  # that may have taken a while
                return None
            order = Order(
                key=key, attempt=attempt, task=group.task, spec=self.definition.digest, priority=self.job.priority,
                isolated=isolated, waited_s=waited, sampling=self.job.sampling,
            )  # fmt: skip
            self._running.add((key, attempt))
            try:
                return await self._engine.dispatch(order, self)
            finally:
                self._running.discard((key, attempt))
        finally:
            permits.release(key.phase)


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


async def _next(source: AsyncIterator[Batch]) -> Batch | None:
    return await anext(source, None)


def _members(job: Job, group: Group, round_: int) -> list[EpisodeKey]:
    """Every episode of a group."""
    return [
        EpisodeKey(phase=job.name, round=round_, task=group.task.id, sample=sample) for sample in range(job.group_size)
    ]


def _is_stop(episode: Episode) -> bool:
    return episode.failure is not None and episode.failure.failure_class is FailureClass.CANCELLED


def _is_crash(episode: Episode) -> bool:
    return episode.failure is not None and episode.failure.failure_class is FailureClass.WORKER


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that says most: whatever stopped the job, not what followed from it; a bug as it is."""
    flat: list[BaseException] = []
    stack: list[BaseException] = [errors]
    while stack:
        error = stack.pop()
        if isinstance(error, BaseExceptionGroup):
            stack.extend(error.exceptions)
        else:
            flat.append(error)
    if len(flat) > 1 and not all(isinstance(each, DeskrollError) for each in flat):
        return errors
    telling = StoreError | BackendLost | BackgroundLost | ConfigError
    return next((each for each in flat if isinstance(each, telling)), flat[0])
