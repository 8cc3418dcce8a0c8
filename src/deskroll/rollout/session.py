"""Session: one start of a run, put together: store, pool, model, backend, engine, watchdog, control.

Guarantees: whatever ends it, no desktop, worker or socket of its own is left, and what was done can be resumed. What
watches over the run while it goes on cannot die unseen: the run ends with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from deskroll.desktops.pool import Pool
from deskroll.desktops.service import PoolClient
from deskroll.events import AttemptEnded, DesktopState, EventSink, LimitsChanged, RunClosed, RunOpened
from deskroll.rollout.backends import Backend
from deskroll.rollout.background import in_background
from deskroll.rollout.config import RunConfig
from deskroll.rollout.control import Steering, serve_control
from deskroll.rollout.demand import Demand
from deskroll.rollout.desktop_journal import DesktopJournal
from deskroll.rollout.engine import Engine
from deskroll.rollout.events import EventHub, RunState, open_hub
from deskroll.rollout.folder import new_root, opened_store
from deskroll.rollout.leftovers import leaving_nothing
from deskroll.rollout.limits import Limits
from deskroll.rollout.loading import PHASE, desktop_specs, prepare_envs
from deskroll.rollout.orders import Activity
from deskroll.rollout.parts import model_keys, opened_backend, opened_pool, run_spec
from deskroll.rollout.plan import failed_before, left_to_do
from deskroll.rollout.pool_watch import PoolWatch
from deskroll.rollout.retry import Retries
from deskroll.rollout.run_budget import RunBudget
from deskroll.rollout.status import RunStatus, WorkerStatus, attention, endpoints_of, ran_by, what_limits
from deskroll.rollout.traces import Traces
from deskroll.rollout.watchdog import Watchdog
from deskroll.store import CloseReason, RunStore
from deskroll.types import Episode, Task

_log = logging.getLogger(__name__)
_MOST_SHOWN = 200


class Session:
    """A run that is open; made by `Session.open`."""

    def __init__(  # noqa: PLR0913  (all that a run holds)
        self,
        config: RunConfig,
        tasks: Sequence[Task],
        store: RunStore,
        engine: Engine,
        backend: Backend,
        pool: Pool | PoolClient | None,
        *,
        demand: Demand,
        budget: RunBudget,
        hub: EventHub,
        state: RunState,
    ) -> None:
        self.config = config
        self.store = store
        self.engine = engine
        self.budget = budget
        self.used_up = ""
        """Which of the run's own limits has stopped it, in words."""
        self._tasks = tasks
        self.backend = backend
        self._pool = pool
        self._pool_watch = PoolWatch(pool, engine.deaths, config.pool_wait)
        self.hub = hub
        self.state = state
        self._watchdog = Watchdog(backend, config, self._activities, sink=hub)
        hub.on(AttemptEnded, self._watchdog.usual.learn)
        self._demand = demand
        self._started_at = time.time()
        engine.on_ended = self._hear_ended
        engine.on_judged = demand.judged

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        config: RunConfig,
        tasks: Sequence[Task],
        *,
        resume: str = "",
        force: bool = False,
        sink: EventSink | None = None,
    ) -> AsyncIterator[Session]:
        """Open everything that a run needs, or that of the run at `resume`."""
        prepared = await asyncio.to_thread(prepare_envs, config, tasks)
        root = resume or new_root(config)
        async with leaving_nothing(), AsyncExitStack() as stack:
            store = await stack.enter_async_context(
                opened_store(config, tasks, root, prepared, resume=bool(resume), force=force)
            )
            spec = run_spec(config, store.storage.root)
            hide = Traces.of_run(spec, model_keys(config)).hide
            hub = await stack.enter_async_context(open_hub(config, store.storage, hide, sink))
            hub.on(DesktopState, DesktopJournal(store).hear)
            state = RunState(hub)
            hub.emit(RunOpened(run_id=store.info.run_id, epoch=store.epoch, pid=os.getpid()))
            left = left_to_do(store.index, PHASE, 0, tasks, config.group_size)
            budget = RunBudget(config.limits, store.index if resume else None)
            demand = Demand(desktop_specs(config, tasks), {} if budget.used_up() else left)
            pool, spec = await stack.enter_async_context(opened_pool(config, demand.leases, spec, hub))
            backend = await stack.enter_async_context(opened_backend(config, spec, store, pool, hub))
            limits = Limits(config.num_rollouts, config.max_concurrent_rollouts, config.reserved)
            retries = Retries(**config.retries.model_dump())
            history = failed_before(store.index) if resume else None
            store.index.forget_text()
            engine = Engine(backend, store, limits, retries, sink=hub, history=history)
            session = cls(
                config, tasks, store, engine, backend, pool, demand=demand, budget=budget, hub=hub, state=state
            )
            steering = Steering(
                status=session.status, change=session.change_limits, stop=session.stop, follow=hub.follow
            )
            socket = await stack.enter_async_context(serve_control(steering, store.info.run_id, config.metrics))
            stack.callback(hub.end_following)
            stack.callback(lambda: hub.emit(RunClosed()))
            store.note(socket=socket)
            yield session

    @property
    def folder(self) -> str:
        """Where the run is kept."""
        return self.store.storage.root

    async def run(self) -> list[Episode]:
        """Run what is planned and not done; all outcomes come back."""
        left = left_to_do(self.store.index, PHASE, 0, self._tasks, self.config.group_size)
        self._check_budget(sum(left.values()))
        async with in_background(self._watches()) as died:
            work = asyncio.ensure_future(self.engine.run(PHASE, self._tasks, samples=self.config.group_size))
            ends = (self.store.failed, self._pool_watch.gone, died)
            try:
                await asyncio.wait((work, *ends), return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    raise next(each.result() for each in ends if each.done())
                episodes = await work
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
        if self.used_up and not self.store.index.finished:
            self.store.end_as(CloseReason.STOPPED, self.used_up)
        return episodes

    def stop(self, now: bool = False) -> None:
        """Start nothing more, and give back what has not begun; `now`: end what runs, too."""
        self._demand.end()
        if now:
            self.engine.stop_now()
        else:
            self.engine.stop()

    def change_limits(self, num_rollouts: int | None, max_concurrent_rollouts: int | None) -> None:
        """Have so many episodes and groups in flight from now on."""
        limits = self.engine.limits
        limits.change(num_rollouts, max_concurrent_rollouts)
        most = limits.episodes.most, limits.groups.most
        self.hub.emit(LimitsChanged(num_rollouts=most[0], max_concurrent_rollouts=most[1]))

    def _activities(self) -> list[Activity]:
        return self.state.activities(ran_by(self.backend.workers()))

    def status(self) -> RunStatus:
        """What it does at this moment."""
        workers = self.backend.workers()
        activities, endpoints = self.state.activities(ran_by(workers)), endpoints_of(workers)
        standing, limits = self.state.standing(), self.engine.limits
        stages = dict(Counter(str(each.stage) for each in activities))
        in_flight = self.state.in_flight
        stuck = attention(activities, endpoints, workers, self.config.watchdog.notice_after)
        pool, no_pool = self._pool_watch.status, self._pool_watch.attention()
        return RunStatus(
            run_id=self.store.info.run_id,
            folder=self.folder,
            pid=os.getpid(),
            epoch=self.store.epoch,
            started_at=self._started_at,
            at=time.time(),
            stopping=self.state.stopping,
            used_up=self.used_up,
            standing=standing,
            in_flight=in_flight,
            waiting=limits.episodes.waiting,
            samples=self.config.group_size,
            num_rollouts=limits.episodes.most,
            max_concurrent_rollouts=limits.groups.most,
            stages=stages,
            activities=tuple(activities[:_MOST_SHOWN]),
            endpoints=tuple(endpoints),
            workers=tuple(
                WorkerStatus(
                    name=each.name,
                    pid=each.pid,
                    running=each.load,
                    rss_mb=each.rss_mb,
                    silent_s=each.silent_s,
                    isolated=each.isolated,
                )
                for each in workers
            ),
            pool=pool,
            attention=(*no_pool, *stuck),
            limit=what_limits(
                standing,
                in_flight,
                limits.episodes.most,
                stages,
                endpoints,
                pool_limit=pool.limit if pool else None,
                no_pool=bool(no_pool),
                stopping=self.state.stopping,
            ),
        )

    def _watches(self) -> dict[str, Coroutine[object, object, None]]:
        """What watches over the run while it goes on, by name."""
        watches = {
            "the watchdog": self._watchdog.watch(),
            "the look at the pool": self._pool_watch.watch(),
            "the clock of limits.run_time": self._follow_time(),
        }
        if self._pool is not None:
            watches["what tells the pool how many desktops are wanted"] = self._demand.keep_told(self._pool)
        return watches

    def _hear_ended(self, episode: Episode) -> None:
        """An attempt has ended: the budget counts it."""
        self.budget.spend(episode)
        self._check_budget(self.state.unstarted)

    def _check_budget(self, unstarted: int) -> None:
        """Start nothing more where the run has used up what it may, and something is left to start."""
        if unstarted and not self.used_up and not self.engine.stopping and (why := self.budget.used_up()):
            self.used_up = why
            running = self.state.in_flight
            under_way = f"; {running} under way will finish" if running else ""
            _log.warning("%s: nothing more is started%s", why, under_way)
            self.stop()

    async def _follow_time(self) -> None:
        """Stop when the run's time is over, if anything is left to start; each attempt that ends later looks, too."""
        while left := self.budget.seconds_left:  # noqa: ASYNC110  (a timer may be early by a little)
            await asyncio.sleep(left)
        self._check_budget(self.state.unstarted)
