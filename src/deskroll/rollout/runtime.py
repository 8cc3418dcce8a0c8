"""Runtime: what is expensive and shared, opened once: store, models, desktops, backend, permits, watchdog, socket.

It knows no tasks, and lives as long as its owner: a command, a service, a trainer. Jobs run on it, one after the other
or side by side, under one set of permits.

Guarantees: whatever ends it, no desktop, worker or socket of its own is left, and what was done can be resumed. What
watches over it while it goes on cannot die unseen: every job ends with that.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from deskroll.desktops.base import DesktopSpec
from deskroll.errors import ConfigError
from deskroll.events import AttemptEnded, DesktopState, EventSink, LimitsChanged, RunClosed, RunOpened
from deskroll.host.supervise import supervise
from deskroll.models.plugin import ModelPlugin
from deskroll.rollout.backends import Backend, BackendContext, backend_kind
from deskroll.rollout.changes import SpecNote
from deskroll.rollout.config import Resources
from deskroll.rollout.control import Extension, Steering, serve_control
from deskroll.rollout.desktop_journal import DesktopJournal
from deskroll.rollout.desktops import Desktops
from deskroll.rollout.engine import Engine
from deskroll.rollout.events import EventHub, RunState, open_hub
from deskroll.rollout.folder import open_store
from deskroll.rollout.group import GroupResult
from deskroll.rollout.job import Batch, Job
from deskroll.rollout.job_run import JobRun, Prepare, Serve, prepare_nothing, start_job
from deskroll.rollout.leftovers import leaving_nothing
from deskroll.rollout.limits import Limits
from deskroll.rollout.main_thread import outlasting_main_thread
from deskroll.rollout.models import Models
from deskroll.rollout.opening import Opening
from deskroll.rollout.orders import Activity, WorkerSetup
from deskroll.rollout.plan import failed_before, filled_before
from deskroll.rollout.pool_watch import PoolWatch
from deskroll.rollout.preparing import check_tasks, desktops_wanted, prepare_envs
from deskroll.rollout.redaction import secrets_of
from deskroll.rollout.status import RunStatus, attention, endpoints_of, ran_by, what_limits
from deskroll.rollout.stopping import RUN_STOPS
from deskroll.rollout.traces import Traces
from deskroll.rollout.watchdog import Watchdog
from deskroll.store import RunStore
from deskroll.store.journal import GroupClosed
from deskroll.types import GroupEnd

_MOST_SHOWN = 200


class Runtime:
    """Made by `Runtime.open`."""

    def __init__(
        self,
        resources: Resources,
        engine: Engine,
        desktops: Desktops,
        hub: EventHub,
        state: RunState,
        *,
        models: Models | None = None,
        traces: Traces | None = None,
    ) -> None:
        self.resources = resources
        self.engine = engine
        self.store = engine.store
        self.used_up = ""
        """Which limit of the whole run has stopped it, in words."""
        self.desktops = desktops
        """Where its desktops come from."""
        self._pool_watch = PoolWatch(desktops, engine.deaths, resources.pool_wait)
        self.hub = hub
        self.state = state
        """What it does now and how it stands, worked out of its events."""
        self._models = models or Models()
        self._watchdog = Watchdog(engine.backend, resources.watchdog, self._activities, sink=hub)
        hub.on(AttemptEnded, self._watchdog.usual.learn)
        self._traces = traces or Traces()
        """What must not be told of any job."""
        self._socket = ""
        self._extension: Extension | None = None
        """What the program that has opened it adds to its control."""
        self._started_at = time.time()
        self._group_size = 1

    @classmethod
    def open(
        cls,
        resources: Resources | None = None,
        *,
        store: str | Path | RunStore,
        leases: Mapping[DesktopSpec, int] | None = None,
        sink: EventSink | None = None,
        models: Models | None = None,
        extension: Extension | None = None,
        model: ModelPlugin | None = None,
    ) -> Opening[Runtime]:
        """Open it for the length of the block, with its results in `store`: a folder, which is made or resumed.

        `leases`: how many leases of desktops there will be in all, where that is known from the start. `extension`:
        what the program that opens it adds to its control. `model`: an object that specs ask whose model is of its
        kind; episodes run in this process then (`backend: inline`).
        """
        return Opening(cls._open(resources or Resources(), store, leases, sink, models, extension, model))

    @classmethod
    @asynccontextmanager
    async def _open(
        cls,
        resources: Resources,
        store: str | Path | RunStore,
        leases: Mapping[DesktopSpec, int] | None,
        sink: EventSink | None,
        models: Models | None,
        extension: Extension | None,
        model: ModelPlugin | None,
    ) -> AsyncIterator[Runtime]:
        options = {"provider_options": resources.provider_options, "backend_options": resources.backend_options}
        traces = Traces(secrets_of(options))
        async with leaving_nothing(), AsyncExitStack() as stack:
            stack.enter_context(outlasting_main_thread())
            if not isinstance(store, RunStore):
                store = await stack.enter_async_context(open_store(store, resources.model_dump(mode="json")))
            hub = await stack.enter_async_context(open_hub(resources, store.storage, traces.hide, sink))
            hub.on(DesktopState, DesktopJournal(store).hear)
            state = RunState(hub)
            hub.emit(RunOpened(run_id=store.info.run_id, epoch=store.epoch, pid=os.getpid()))
            if models is None:
                models = await stack.enter_async_context(Models())
            models.tell(hub)
            desktops = await stack.enter_async_context(Desktops(resources, hub))
            if leases:
                await desktops.open(leases, all_told=True)
            backend = await stack.enter_async_context(_open_backend(resources, store, desktops, hub, model))
            limits = Limits(resources.num_rollouts, resources.max_concurrent_rollouts, resources.reserved)
            engine = Engine(
                backend, store, limits, sink=hub, history=failed_before(store.index), filled=filled_before(store.index)
            )
            store.index.forget_text()
            runtime = cls(resources, engine, desktops, hub, state, models=models, traces=traces)
            runtime._extension = extension
            await stack.enter_async_context(runtime._answering())
            await stack.enter_async_context(runtime.watch())
            stack.push_async_callback(engine.close)
            yield runtime

    @asynccontextmanager
    async def _answering(self) -> AsyncIterator[None]:
        """Answer on the control socket for the length of the block; whoever follows hears of the end."""
        steering = Steering(
            status=self.status, change=self.change_limits, stop=self._stop_for_others, follow=self.hub.follow,
            routes=tuple(self._extension.routes()) if self._extension else (),
        )  # fmt: skip
        async with serve_control(steering, self.store.info.run_id, self.resources.metrics) as socket:
            self.store.note(socket=socket)
            self._socket = socket
            try:
                yield
            finally:
                self.hub.emit(RunClosed())
                self.hub.end_following()

    @property
    def folder(self) -> str:
        """Where its results are kept."""
        return self.store.storage.root

    def run(self, job: Job, *, force: bool = False) -> JobRun:
        """Start a job: `async for group in runtime.run(job)` yields its groups as they finish.

        `force`: although its rounds have outcomes of tasks or of a spec that have changed since.
        """
        prepare = partial(self._prepare, SpecNote.of(job.spec), force)
        return self._start(job, prepare, self._models.answering)

    def run_prepared(self, job: Job) -> JobRun:
        """Start a job whose tasks were checked and made ready, and whose models were asked."""
        return self._start(job, prepare_nothing, self._models.serving)

    def _start(self, job: Job, prepare: Prepare, serve: Serve) -> JobRun:
        run = start_job(self.engine, job, prepare, serve)  # from here on it has its name for itself
        self._watchdog.expect(job.name, job.spec)
        self._traces.add(run.definition)
        self._group_size = job.group_size
        return run

    def withhold(self, group: GroupResult) -> None:
        """Note that a group which has finished is not used, for it is too old: its episodes keep their outcomes."""
        self.store.write(
            GroupClosed(phase=group.phase, round=group.round, task=group.task.id, at=time.time(), end=GroupEnd.WITHHELD)
        )

    def stop(self, now: bool = False) -> None:
        """Start nothing more, of any job, and give back what has not begun; `now`: end what runs, too."""
        self.engine.stop(now=now)

    def _stop_for_others(self, now: bool) -> None:
        """Somebody asked for it over the control socket: whoever iterates over a job is told."""
        if self._extension is not None:
            self._extension.stop(now)
        else:
            self.engine.stop(now=now, by_others=True)

    def change_limits(self, num_rollouts: int | None, max_concurrent_rollouts: int | None) -> None:
        """Have so many episodes and groups in flight from now on."""
        limits = self.engine.limits
        limits.change(num_rollouts, max_concurrent_rollouts)
        most = limits.episodes.most, limits.groups.most
        self.hub.emit(LimitsChanged(num_rollouts=most[0], max_concurrent_rollouts=most[1]))

    def _activities(self) -> list[Activity]:
        return self.state.activities(ran_by(self.engine.backend.workers()))

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[None]:
        """Watch over it for the length of the block: where something that jobs need is gone, they end."""
        async with supervise(self._watches(), RUN_STOPS) as died:
            ends: list[asyncio.Future[Any]] = [self.store.failed, self._pool_watch.gone, died]
            if (lost := self.engine.backend.lost) is not None:
                ends.append(lost)
            watching = asyncio.create_task(self._end_jobs(ends))
            try:
                yield
            finally:
                watching.cancel()
                await asyncio.wait((watching,))

    def status(self) -> RunStatus:
        """What it does at this moment."""
        engine, workers = self.engine, self.engine.backend.workers()
        limits, in_flight = engine.limits, self.state.in_flight
        activities, endpoints = self.state.activities(ran_by(workers)), endpoints_of(workers, self.state.routed)
        standing = self.state.standing()
        stages = dict(Counter(str(each.stage) for each in activities))
        stuck = attention(activities, endpoints, workers, self.resources.watchdog.notice_after)
        pool, no_pool = self._pool_watch.status, self._pool_watch.attention()
        service = self._extension.status() if self._extension else None
        limit = what_limits(
            standing,
            in_flight,
            limits.episodes.most,
            stages,
            endpoints,
            pool_limit=pool.limit if pool else None,
            no_pool=bool(no_pool),
            stopping=engine.stopping,
        )
        if service is not None and standing.done == standing.planned:
            limit = service.limit
        training = self.state.training.status()
        if training is not None and not engine.stopping:
            limit = training.limit(limit)
        return RunStatus(
            run_id=self.store.info.run_id,
            folder=self.folder,
            pid=os.getpid(),
            epoch=self.store.epoch,
            started_at=self._started_at,
            at=time.time(),
            stopping=engine.stopping,
            used_up=self.used_up,
            standing=standing,
            jobs=tuple(job.status() for job in engine.jobs.values()),
            in_flight=in_flight,
            waiting=limits.episodes.waiting,
            samples=self._group_size,
            num_rollouts=limits.episodes.most,
            max_concurrent_rollouts=limits.groups.most,
            stages=stages,
            activities=tuple(activities[:_MOST_SHOWN]),
            endpoints=tuple(endpoints),
            workers=tuple(workers),
            pool=pool,
            attention=(*no_pool, *stuck),
            limit=limit,
            socket=self._socket,
            service=service,
            training=training,
        )

    def _watches(self) -> dict[str, Coroutine[object, object, None]]:
        """What watches over it, by name."""
        return {"the watchdog": self._watchdog.watch(), "the look at the pool": self._pool_watch.watch()}

    async def _end_jobs(self, ends: Sequence[asyncio.Future[Any]]) -> None:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        self.engine.fail(next(each.result() for each in ends if each.done()))

    async def _prepare(self, note: SpecNote, force: bool, job: Job, batch: Batch) -> str:
        """Check tasks, make ready what their environments share, and have desktops where they need some."""
        check_tasks(job.spec, batch.tasks)
        digest = await note.keep(self.store, job, batch, force=force)
        self.store.keep_questions(job.name, batch.round, batch.tasks)
        await asyncio.to_thread(prepare_envs, job.spec, batch.tasks, Path(job.folder))
        if wanted := Counter(spec for _, spec in desktops_wanted(job.spec, batch.tasks)):
            await self.desktops.open(wanted)
        return digest


@asynccontextmanager
async def _open_backend(
    resources: Resources, store: RunStore, desktops: Desktops, sink: EventSink, model: ModelPlugin | None
) -> AsyncIterator[Backend]:
    """Where episodes run."""
    setup = WorkerSetup(
        storage=store.storage.root,
        pool=desktops.at,
        plan=desktops.plan,
        pool_wait=desktops.wait,
        notice_after=resources.watchdog.notice_after,
        events=resources.events.enabled,
    )
    keep = (store.lock_fd,) if store.lock_fd is not None else ()
    context = BackendContext(leases=desktops, keep=keep, sink=sink, workers=resources, model=model)
    kind = backend_kind(resources.backend)
    if model is not None and kind.has_workers:
        raise ConfigError(
            f"backend is {resources.backend!r}: a model that is an object is asked in this process; set inline"
        )
    options = kind.read_options(resources.backend_options, "backend_options")
    async with kind.for_run(setup, options, context) as backend:
        yield backend
