"""What watches over a run cannot die unseen: the run ends with it, names it, and can be resumed."""

from __future__ import annotations

import asyncio
import io
import itertools
import logging
from collections.abc import Collection, Mapping
from typing import NoReturn, cast

import msgspec
import pytest
from rich.console import Console

from deskroll.conduct.view import Progress
from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.pool import PoolStatus
from deskroll.errors import BackgroundLost, DeathCause, DeskrollError, DesktopLost, PoolGone
from deskroll.rollout.backends import WorkerStatus
from deskroll.rollout.config import RunLimits
from deskroll.rollout.demand import Demand
from deskroll.rollout.desktops import Desktops
from deskroll.rollout.engine import Engine
from deskroll.rollout.events import EventHub, RunState
from deskroll.rollout.job import Job
from deskroll.rollout.job_run import start_job
from deskroll.rollout.limits import Limits
from deskroll.rollout.orders import AttemptName, Order
from deskroll.rollout.run_budget import RunBudget
from deskroll.rollout.runtime import Runtime
from deskroll.rollout.session import Session
from deskroll.rollout.spec import Definition, EpisodeSpec
from deskroll.rollout.status import RunStatus
from deskroll.store import CloseReason, Run, RunStore
from deskroll.store.journal import Failed
from deskroll.types import Episode, EpisodeKey, Failure
from tests.rollout.conftest import ANSWER, Runs, questions, script, until
from tests.store.records import episode, info
from tests.waiting import kill_task


def fail() -> NoReturn:
    raise RuntimeError("boom\nin two lines")


class Forever:
    """A backend whose attempts go on until they are stopped; `broken`: it cannot say what they do."""

    def __init__(self, *, broken: bool = False) -> None:
        self._broken = broken
        self._stopped = asyncio.Event()

    async def run(self, order: Order) -> Episode | None:
        await self._stopped.wait()
        return None

    def stop(self, key: EpisodeKey, attempt: int, error: DeskrollError | None, visit: int | None = None) -> bool:
        self._stopped.set()
        return True

    lost = None

    def define(self, definition: Definition) -> None:
        pass

    def give_back(self, attempts: Collection[AttemptName]) -> asyncio.Future[int]:
        return asyncio.get_running_loop().create_future()

    def dump(self, key: EpisodeKey, attempt: int, why: str) -> None:
        pass

    def workers(self) -> list[WorkerStatus]:
        if self._broken:
            fail()
        return []


class BrokenPool:
    """A pool that fails in a way that nobody foresaw, where it is asked `at`."""

    def __init__(self, at: str) -> None:
        self._at = at
        self.pool = self

    async def status(self) -> PoolStatus:
        if self._at == "status":
            fail()
        raise PoolGone("it is away, which is waited for")

    async def expect(self, leases: Mapping[DesktopSpec, int]) -> None:
        if self._at == "expect":
            fail()


class NoPool:
    """Where no desktop is needed."""

    pool = None

    async def expect(self, leases: Mapping[DesktopSpec, int]) -> None:
        pass


class BrokenClock(RunBudget):
    """A budget that cannot tell how much time is left."""

    @property
    def seconds_left(self) -> float | None:
        fail()

    def used_up(self) -> str:
        return ""


async def run_with(
    runs: Runs,
    *,
    backend: Forever | None = None,
    pool: BrokenPool | None = None,
    budget: RunBudget | None = None,
) -> None:
    """A run of one episode that does not end by itself, put together from these."""
    config, tasks, backend = runs.config(), questions(1), backend or Forever()
    demand = Demand({}, {})
    demand.end()  # which the pool is to be told
    async with RunStore.create(f"{runs.folder}/run", info()) as store:
        hub = EventHub(str, enabled=False)
        engine = Engine(backend, store, Limits(1), sink=hub)
        runtime = Runtime(config, engine, cast(Desktops, pool or NoPool()), hub, RunState(hub))
        session = Session(config, tasks, runtime, demand=demand, budget=budget or RunBudget(RunLimits()))
        async with runtime.watch():
            await asyncio.wait_for(session.run(), 60)


async def check_death(runs: Runs, name: str, **parts: object) -> None:
    with pytest.raises(BackgroundLost) as told:
        await run_with(runs, **parts)  # type: ignore[arg-type]
    assert str(told.value).startswith(f"{name} died (RuntimeError: boom in two lines), and the run stops here")
    assert isinstance(told.value.__cause__, RuntimeError)
    closed = Run.open(f"{runs.folder}/run").index.closed
    assert closed is not None
    assert (closed.why, name in closed.note) == (CloseReason.FAILED, True)


async def test_the_watchdog(runs: Runs) -> None:
    await check_death(runs, "the watchdog", backend=Forever(broken=True))


async def test_the_look_at_the_pool(runs: Runs) -> None:
    await check_death(runs, "the look at the pool", pool=BrokenPool("status"))


async def test_what_tells_the_pool(runs: Runs) -> None:
    await check_death(runs, "what tells the pool how many desktops are wanted", pool=BrokenPool("expect"))


async def test_the_clock_of_the_run(runs: Runs) -> None:
    await check_death(runs, "the clock of limits.run_time", budget=BrokenClock(RunLimits()))


class BrokenLog(logging.Handler):
    """Fails on what a worker tells; the standard handlers would swallow that."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "it begins":
            fail()


@pytest.mark.parametrize("count", [1, 3])
async def test_what_listens_to_a_worker(runs: Runs, count: int) -> None:
    log, broken = logging.getLogger("deskroll"), BrokenLog()
    log.addHandler(broken)
    try:
        with pytest.raises(
            BackgroundLost, match=r"what listens to worker \d+ died \(RuntimeError: boom in two lines\)"
        ):
            await asyncio.wait_for(
                runs.run(
                    script(ANSWER), questions(count), env="tests.rollout.parts:WarningEnv", backend="process",
                    workers=1, num_rollouts=count,
                ),
                90,
            )  # fmt: skip
    finally:
        log.removeHandler(broken)


class DyingAtOnce(Forever):
    """The desktop of the first task dies at once, of what was done in it; the others go on."""

    async def run(self, order: Order) -> Episode | None:
        if order.task.id != "task-0":
            return await super().run(order)
        failure = msgspec.structs.replace(Failure.of(DesktopLost("it is gone")), cause=DeathCause.INSIDE)
        return episode(order.key, order.attempt, None, stop="failure", failure=failure, actions=1, desktop="d")


async def test_a_death_that_nobody_could_judge_is_no_evidence(runs: Runs) -> None:
    """The run ends before it is known whether other desktops died at the same time: in doubt nobody is blamed."""
    async with RunStore.create(f"{runs.folder}/run", info()) as store:
        engine = Engine(DyingAtOnce(), store, Limits(2))
        run = start_job(engine, Job("eval", questions(2), EpisodeSpec()))
        await until(lambda: [key.task for key, _ in engine.running] == ["task-1"], "the first one is judged")
        await run.cancel()
    (failed,) = Run.open(f"{runs.folder}/run").records(Failed)
    assert failed.episode.failure is not None
    assert (failed.episode.key.task, failed.episode.failure.cause) == ("task-0", DeathCause.UNKNOWN)


class Waiting(Forever):
    """Its attempts wait for a worker that never comes."""

    def stop(self, key: EpisodeKey, attempt: int, error: DeskrollError | None, visit: int | None = None) -> bool:
        return False


async def test_the_end_of_a_run_does_not_wait_for_attempts_that_nobody_runs(runs: Runs) -> None:
    async with RunStore.create(f"{runs.folder}/run", info()) as store:
        engine = Engine(Waiting(), store, Limits(2))
        run = start_job(engine, Job("eval", questions(2), EpisodeSpec()))
        await until(lambda: len(engine.running) == 2, "both were ordered")
        await asyncio.wait_for(run.cancel(), 5.0)  # they were waited for, if it takes longer


async def test_the_display_which_the_run_does_not_need(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    asked = itertools.count()
    async with runs.open(script(ANSWER), questions(1)) as session:

        def status() -> RunStatus:
            return session.status() if next(asked) else fail()

        with caplog.at_level(logging.WARNING, "deskroll"):
            async with Progress(Console(file=io.StringIO(), force_terminal=True), status).shown():
                told = "no progress is shown any more: RuntimeError: boom in two lines; the run goes on"
                await until(lambda: told in caplog.text, "it is told")


@pytest.mark.parametrize(("backend", "name"), [("inline", "the watchdog"), ("process", "what looks after the workers")])
async def test_what_is_killed_from_outside_ends_the_run(runs: Runs, backend: str, name: str) -> None:
    async with runs.open(script(ANSWER, latency=1000.0), questions(2), backend=backend) as session:
        work = asyncio.ensure_future(session.run())
        await until(lambda: len(session.engine.running) == 2, "both are under way")
        await kill_task(name)
        with pytest.raises(BackgroundLost, match=rf"^{name} died \(CancelledError\), and the run stops here"):
            await asyncio.wait_for(work, 30)


async def test_a_killed_listener_of_a_worker_ends_the_run(runs: Runs) -> None:
    async with runs.open(script(ANSWER, latency=1000.0), questions(1), backend="process", workers=1) as session:
        work = asyncio.ensure_future(session.run())
        await until(lambda: len(session.engine.running) == 1, "it is under way")
        await kill_task(f"what listens to worker {session.status().workers[0].pid}")
        with pytest.raises(BackgroundLost, match=r"^what listens to worker \d+ died \(CancelledError\)"):
            await asyncio.wait_for(work, 30)
