"""Service: polls a source for batches, has its models serve the newest weights, runs each batch and stores it.

    while it is served:  poll → nothing: wait, longer each time, until something changes
                              → a batch: it gets its round → the newest weights → it is run, and stored

It is one job on a runtime, whose rounds are the batches: while the last groups of one batch are under way, the next one
is polled and planned, so that nothing stands idle. Guarantees: a batch is run once, whatever is killed, and what a
start leaves unfinished the next one finishes first; a bad batch is named and set aside, and stops nothing; neither does
a source that cannot be polled, nor weights that cannot be had, nor a model that answered at the start and does not now.
One that was taken and cannot go on any more (a file of its tasks is gone) is given up, and named as bad; one that was
begun with other settings refuses the start.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from aiohttp import web

from deskroll.errors import DeskrollError, InputError, plain
from deskroll.events import BatchEnded, BatchRefused, BatchTaken, EventSink
from deskroll.host.backoff import Backoff
from deskroll.models.vllm.pool import ModelServicePool
from deskroll.report.words import counted
from deskroll.rollout.changes import ChangedSince
from deskroll.rollout.group import GroupResult
from deskroll.rollout.job import Batch, Job
from deskroll.rollout.runtime import Runtime
from deskroll.rollout.service_status import BadBatchNote, RunningBatch, ServiceStatus
from deskroll.service.checking import find_fault, is_closed, refuse_other_size
from deskroll.service.config import PHASE, ServiceConfig
from deskroll.service.ledger import BatchLedger, Taken
from deskroll.service.parts import ServiceParts, open_parts
from deskroll.service.routes import GroupRoutes
from deskroll.tasks.batches import BadBatch, SourceError, TaskBatch, TaskLoader, as_text, bad_batch
from deskroll.types import Episode, Task

_log = logging.getLogger(__name__)
_LATE_S = 0.01
"""So much later than the end of its time it is looked whether that is over: a timer may be early by a little."""


class Service:
    """Made by `Service.open`."""

    def __init__(self, config: ServiceConfig, parts: ServiceParts) -> None:
        self.config = config
        self.runtime: Runtime
        self._parts = parts
        self._ledger: BatchLedger = parts.ledger
        self._loader: TaskLoader = parts.loader
        self._pool: ModelServicePool | None = parts.pool
        self._groups = GroupRoutes(parts.store)
        self._left: dict[int, set[str]] = {}
        """Of each batch that runs, the tasks whose group is not closed yet."""
        self._stopping = asyncio.Event()
        self._begun = False
        self._next_poll: float | None = None
        self._trouble = ""

    @classmethod
    @asynccontextmanager
    async def open(cls, config: ServiceConfig, sink: EventSink | None = None) -> AsyncIterator[Service]:
        """Open everything that it needs: its folder, model servers, source, runtime; and answer on its sockets."""
        async with AsyncExitStack() as stack:
            parts = await stack.enter_async_context(open_parts(config))
            service = cls(config, parts)
            stack.push_async_callback(service._groups.close)
            opening = Runtime.open(parts.config, store=parts.store, sink=sink, models=parts.models, extension=service)
            service.runtime = await stack.enter_async_context(opening)
            await stack.enter_async_context(service._groups.listening(config.listen))
            yield service

    async def run(self, *, force: bool = False) -> None:
        """Serve until it is stopped, or has had as many batches as it may.

        `force`: go on with batches that were begun although settings that decide outcomes have changed since.
        """
        if not await self._models_are_ready():
            return
        self._begun = True
        job = Job(PHASE, self._batches(force), self._parts.config, self.config.group_size, folder=self._parts.folder)
        run = self.runtime.run(job, force=force)
        try:
            with self._within_budget():
                async for group in run:
                    await self._hear(group)
        finally:
            self._groups.end()

    def stop(self, now: bool = False) -> None:
        """Take no new batch; those that were taken are finished. `now`: end what runs, too: a restart does it again."""
        self._stopping.set()
        if now:
            self.runtime.stop(now=True)

    async def farewell(self) -> str:
        """What becomes of what runs, once it was told to stop, in words."""
        running = self._running()
        if not running:
            return "stopping: no batch is under way"
        left = f"{counted(len(running), 'batch', 'batches')} with {counted(sum(e.left for e in running), 'task')} left"
        if self._pool is not None and not self._begun:  # it does not wait for its models any more
            return f"stopping, before anything was begun; a restart goes on with {left}"
        return f"no new batch is taken; {left} will finish; Ctrl-C again stops now, and a restart does the rest"

    @property
    def counts(self) -> str:
        """How many batches it has had, over all of its starts, in words."""
        return self._ledger.counts

    def routes(self) -> Sequence[web.RouteDef]:
        """Those of consumers."""
        return self._groups.routes()

    def status(self) -> ServiceStatus:
        """What it does at this moment."""
        ledger = self._ledger
        bad = tuple(BadBatchNote(id=each.id, error=each.error, at=each.at) for each in reversed(ledger.bad))
        return ServiceStatus(
            source=self.config.source.shown, done=ledger.finished, running=self._running(),
            waiting=self._loader.waiting,
            bad=ledger.bad_count, last_bad=bad, passed=ledger.passed, next_poll=self._next_poll, trouble=self._trouble,
            draining=self._stopping.is_set(), version=self._pool.checkpoint_info().version if self._pool else "",
            consumers=self._groups.consumers(), begun=self._begun,
        )  # fmt: skip

    def _running(self) -> tuple[RunningBatch, ...]:
        """What was taken and is not through, also where an earlier start took it and this one has not come to it."""
        return tuple(
            RunningBatch(
                id=each.id, round=each.round, tasks=each.tasks, since=each.at,
                left=len(self._left[each.round]) if each.round in self._left else each.tasks,
            )
            for each in self._ledger.unfinished.values()
        )  # fmt: skip

    # --- batches ---

    async def _batches(self, force: bool) -> AsyncIterator[Batch]:
        """What the job runs: what earlier starts left first, then what comes."""
        for taken in list(self._ledger.unfinished.values()):
            tasks = await self._ledger.tasks(taken)
            if is_closed(self.runtime.store.index, taken.round, tasks):
                await self._ledger.finish(taken.round)  # only that was missing
            elif fault := await self._fault(TaskBatch(id=taken.id, digest=taken.digest, tasks=tasks)):
                self._tell_bad(taken.id, fault, await self._ledger.give_up(taken, fault))
            else:
                if not force:
                    refuse_other_size(self.runtime.store.index, taken.round, taken.id, self.config.group_size)
                async with self._given_up_where_wrong(taken, tasks):
                    yield await self._begin(taken, tasks, again=True)
        while (batch := await self._next_batch()) is not None:
            taken = await self._ledger.take(batch)
            async with self._given_up_where_wrong(taken, batch.tasks):
                yield await self._begin(taken, batch.tasks)

    @asynccontextmanager
    async def _given_up_where_wrong(self, taken: Taken, tasks: tuple[Task, ...]) -> AsyncIterator[None]:
        """Around a batch that is handed to the job, which raises here what it finds wrong with it."""
        try:
            yield
        except ChangedSince:
            raise
        except InputError as wrong:
            fault = await self._fault(TaskBatch(id=taken.id, digest=taken.digest, tasks=tasks)) or str(wrong)
            del self._left[taken.round]
            self._tell_bad(taken.id, fault, await self._ledger.give_up(taken, fault))

    async def _begin(self, taken: Taken, tasks: tuple[Task, ...], *, again: bool = False) -> Batch:
        self._left[taken.round] = {task.id for task in tasks}
        self.runtime.hub.emit(BatchTaken(phase=PHASE, round=taken.round, batch=taken.id, tasks=len(tasks), again=again))
        await self._load_latest_model()
        return Batch(tasks=tasks, round=taken.round, whole=True)

    async def _hear(self, group: GroupResult) -> None:
        """A group is closed; with the last one of a batch, that is through."""
        left = self._left.get(group.round, set())
        left.discard(group.task.id)
        if not left and (taken := self._ledger.unfinished.get(group.round)) is not None:
            await self.runtime.store.sync()  # else a kill could leave its end here, and not what it came to
            await self._ledger.finish(group.round)
            del self._left[group.round]
            seconds = round(time.time() - taken.at, 3)
            self.runtime.hub.emit(
                BatchEnded(phase=PHASE, round=group.round, batch=taken.id, tasks=taken.tasks, seconds=seconds)
            )

    async def _next_batch(self) -> TaskBatch | None:
        """The next batch that can be run; None: no more is to be taken."""
        backoff, quiet = Backoff(base=self.config.backoff_ms / 1000, longest=self.config.backoff_max_ms / 1000), 0
        while not self._is_over():
            found = await self._poll()
            if isinstance(found, TaskBatch):
                if not (fault := await self._fault(found)):
                    return found
                found = bad_batch(found, fault)
            if found is not None:
                await self._set_aside(found)
                quiet = 0
                continue
            quiet += 1
            if await self._pause(backoff.pause(quiet)):
                quiet = 0
        return None

    async def _fault(self, batch: TaskBatch) -> str:
        return await find_fault(self._parts.config, batch, self._parts.folder)

    def _is_over(self) -> bool:
        most = self.config.max_batches
        return self._stopping.is_set() or (most is not None and self._ledger.taken >= most)

    async def _poll(self) -> TaskBatch | BadBatch | None:
        try:
            found = await self._loader.poll_for_tasks()
        except SourceError as error:
            self._tell_trouble(str(error))
            return None
        self._trouble = ""
        return found

    async def _pause(self, seconds: float) -> bool:
        """Wait until it is worth polling again, or it is told to stop; whether something has changed."""
        self._next_poll = time.time() + seconds
        changed = asyncio.ensure_future(self._loader.wait(seconds))
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((changed, stopped), return_when=asyncio.FIRST_COMPLETED)
            return changed.done() and changed.result()
        finally:
            changed.cancel()
            stopped.cancel()
            self._next_poll = None

    async def _set_aside(self, bad: BadBatch) -> None:
        await self._ledger.refuse(bad)
        where = ""
        try:
            where = await self._loader.set_aside(bad)
        except SourceError as error:
            _log.warning("%s", plain(str(error), 2000))
        self._tell_bad(bad.id, bad.error, where)

    def _tell_bad(self, batch: str, error: str, where: str) -> None:
        moved = f", and is now {plain(where, 2000)}" if where else ""
        _log.warning("batch %s is bad%s: %s", plain(batch), moved, plain(error, 2000))
        self.runtime.hub.emit(BatchRefused(batch=batch, reason=as_text(error), at_path=where))

    # --- limits of all of it ---

    @contextmanager
    def _within_budget(self) -> Iterator[None]:
        """Start nothing more once it has used up what it may, over all of its starts."""
        self.runtime.engine.on_judged.append(self._spend)
        left, timer = self._parts.budget.seconds_left, None
        if left is not None:
            timer = asyncio.get_running_loop().call_later(left + _LATE_S, self._check_budget)
        self._check_budget()
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()

    def _spend(self, episode: Episode, again: bool) -> None:
        self._parts.budget.spend(episode)
        self._check_budget()

    def _check_budget(self) -> None:
        if not self.runtime.used_up and (why := self._parts.budget.used_up()):
            self.runtime.used_up = why
            _log.warning("%s: nothing more is started", why)
            self.stop()
            self.runtime.stop()

    # --- models ---

    async def _models_are_ready(self) -> bool:
        """Wait for the service's own model servers, if it has any; False: it was told to stop before that."""
        if self._pool is None:
            return True
        ready = asyncio.ensure_future(self._wait_for(self._pool))
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((ready, stopped), return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                ready.result()
            return not self._stopping.is_set()
        finally:
            for each in (ready, stopped):
                each.cancel()
            await asyncio.gather(ready, stopped, return_exceptions=True)

    async def _wait_for(self, pool: ModelServicePool) -> None:
        await pool.ready()
        await self._parts.models.answering(self._parts.config)  # once: no batch that comes later ends the service

    async def _load_latest_model(self) -> None:
        """Have newer weights served, where there are some; what runs goes on meanwhile."""
        if self._pool is None:
            return
        try:
            done = await self._pool.load_latest_model()
        except DeskrollError as error:  # the old ones go on serving
            self._tell_trouble(str(error))
            return
        self._trouble = ""
        if done.changed:
            _log.info("version %s of the weights is served", done.checkpoint.version or "-")

    def _tell_trouble(self, trouble: str) -> None:
        """Say what is wrong, once for as long as it is the same."""
        if trouble != self._trouble:
            _log.warning("%s", plain(trouble, 2000))
        self._trouble = trouble
