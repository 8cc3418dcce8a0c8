"""Session: one start of a run: one job over a list of tasks, on a runtime of its own, within the run's own limits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from deskroll.errors import JobStopped
from deskroll.events import EventSink, RunStopping
from deskroll.host.supervise import supervise
from deskroll.report.words import counted
from deskroll.rollout.config import RunConfig
from deskroll.rollout.demand import Demand
from deskroll.rollout.engine import Engine
from deskroll.rollout.events import RunState
from deskroll.rollout.folder import new_root, open_run_store
from deskroll.rollout.job import Job
from deskroll.rollout.job_run import JobRun
from deskroll.rollout.loading import PHASE
from deskroll.rollout.models import Models
from deskroll.rollout.plan import left_to_do
from deskroll.rollout.preparing import desktops_wanted, prepare_envs
from deskroll.rollout.run_budget import RunBudget
from deskroll.rollout.runtime import Runtime
from deskroll.rollout.status import RunStatus
from deskroll.rollout.stopping import RUN_STOPS
from deskroll.store import CloseReason, RunStore
from deskroll.tasks import tasks_folder
from deskroll.types import Episode, Task

_log = logging.getLogger(__name__)


class Session:
    """A run that is open; made by `Session.open`."""

    def __init__(
        self, config: RunConfig, tasks: Sequence[Task], runtime: Runtime, *, demand: Demand, budget: RunBudget
    ) -> None:
        self.config = config
        self.runtime = runtime
        self.budget = budget
        self._tasks = tasks
        self._demand = demand
        self._job: JobRun | None = None
        runtime.engine.on_judged.append(self._hear_judged)
        runtime.hub.on(RunStopping, lambda _: demand.end())

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
        models: Models | None = None,
    ) -> AsyncIterator[Session]:
        """Open everything that a run needs, or that of the run at `resume`; `models` are served already."""
        prepared = await asyncio.to_thread(prepare_envs, config, tasks, tasks_folder(config.tasks))
        root = resume or new_root(config)
        async with open_run_store(config, tasks, root, prepared, resume=bool(resume), force=force) as store:
            left = left_to_do(store.index, PHASE, 0, tasks, config.group_size)
            budget = RunBudget(config.limits, store.index if resume else None)
            specs = {task.id: spec for task, spec in desktops_wanted(config, tasks, config.tasks)}
            demand = Demand(specs, {} if budget.used_up() else left)
            opening = Runtime.open(config, store=store, leases=demand.leases, sink=sink, models=models)
            async with opening as runtime:
                yield cls(config, tasks, runtime, demand=demand, budget=budget)

    @property
    def store(self) -> RunStore:
        """Where it is written."""
        return self.runtime.store

    @property
    def engine(self) -> Engine:
        """What it runs on."""
        return self.runtime.engine

    @property
    def state(self) -> RunState:
        """What it does now and how it stands, worked out of its events."""
        return self.runtime.state

    @property
    def used_up(self) -> str:
        """Which of the run's own limits has stopped it, in words."""
        return self.runtime.used_up

    @property
    def folder(self) -> str:
        """Where the run is kept."""
        return self.runtime.folder

    async def run(self) -> list[Episode]:
        """Run what is planned and not done; all outcomes come back, also where it was stopped before its end."""
        left = left_to_do(self.store.index, PHASE, 0, self._tasks, self.config.group_size)
        folder = str(tasks_folder(self.config.tasks))
        job = Job(PHASE, self._tasks, self.config, group_size=self.config.group_size, folder=folder)
        parts = {
            "the clock of limits.run_time": self._follow_time(),
            "what tells the pool how many desktops are wanted": self._demand.keep_told(self.runtime.desktops),
        }
        async with supervise(parts, RUN_STOPS) as died:
            run = self._job = self.runtime.run_prepared(job)
            died.add_done_callback(lambda died: run.fail(died.result()))
            self._check_budget(sum(left.values()))
            with contextlib.suppress(JobStopped):  # that it was stopped is told by what is missing
                async for _ in run:
                    pass
            episodes = await run.outcomes_so_far()
        if self.used_up and not self.store.index.finished:
            self.store.end_as(CloseReason.STOPPED, self.used_up)
        return episodes

    def stop(self, now: bool = False) -> None:
        """Start nothing more, and give back what has not begun; `now`: end what runs, too."""
        self.runtime.stop(now)

    async def farewell(self) -> str:
        """What becomes of its episodes, once it was told to stop and the workers have said what they have begun."""
        finishing = left = 0
        if self._job is not None:
            finishing = await self._job.finishing()
            status = self._job.status()
            left = max(0, status.planned - status.done - finishing)
        ends = f"{counted(finishing, 'episode')} under way will finish" if finishing else "no episode is under way"
        return f"stopping: {ends}, {left:,} left for a resume; Ctrl-C again stops now"

    def status(self) -> RunStatus:
        """What it does at this moment."""
        return self.runtime.status()

    def _hear_judged(self, episode: Episode, again: bool) -> None:
        """An attempt has ended: the pool may have to know, and the budget counts it."""
        self._demand.judged(episode, again)
        self.budget.spend(episode)
        self._check_budget(0 if self._job is None else self._job.unstarted)

    def _check_budget(self, unstarted: int) -> None:
        """Start nothing more where the run has used up what it may, and something is left to start."""
        if unstarted and not self.used_up and not self.engine.stopping and (why := self.budget.used_up()):
            self.runtime.used_up = why
            running = self.state.in_flight
            under_way = f"; {running} under way will finish" if running else ""
            _log.warning("%s: nothing more is started%s", why, under_way)
            self.stop()

    async def _follow_time(self) -> None:
        """Stop when the run's time is over, if anything is left to start; each attempt that ends later looks, too."""
        while left := self.budget.seconds_left:  # noqa: ASYNC110  (a timer may be early by a little)
            await asyncio.sleep(left)
        self._check_budget(0 if self._job is None else self._job.unstarted)
