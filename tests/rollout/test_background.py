"""What watches over a run cannot die unseen: the run ends with it, names it, and can be resumed."""

from __future__ import annotations

import asyncio
import io
import itertools
import logging
from collections.abc import Mapping
from typing import NoReturn, cast

import pytest
from rich.console import Console

from deskroll.cli.run_view import Progress
from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.pool import Pool, PoolStatus
from deskroll.errors import BackgroundLost, DeskrollError, PoolGone
from deskroll.rollout.backends import WorkerVitals
from deskroll.rollout.background import in_background
from deskroll.rollout.config import LimitSettings
from deskroll.rollout.demand import Demand
from deskroll.rollout.engine import Engine
from deskroll.rollout.limits import Limits
from deskroll.rollout.orders import Order
from deskroll.rollout.run_budget import RunBudget
from deskroll.rollout.session import Session
from deskroll.rollout.status import RunStatus
from deskroll.store import CloseReason, Run, RunStore
from deskroll.types import Episode, EpisodeKey
from tests.rollout.conftest import ANSWER, Runs, questions, script, until
from tests.store.records import info


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

    def stop(self, key: EpisodeKey, attempt: int, error: DeskrollError | None, visit: int | None = None) -> None:
        self._stopped.set()

    def give_back(self) -> asyncio.Future[int]:
        return asyncio.get_running_loop().create_future()

    def dump(self, key: EpisodeKey, attempt: int, why: str) -> None:
        pass

    def workers(self) -> list[WorkerVitals]:
        if self._broken:
            fail()
        return []


class BrokenPool:
    """A pool that fails in a way that nobody foresaw, where it is asked `at`."""

    def __init__(self, at: str) -> None:
        self._at = at

    async def status(self) -> PoolStatus:
        if self._at == "status":
            fail()
        raise PoolGone("it is away, which is waited for")

    async def expect(self, leases: Mapping[DesktopSpec, int]) -> None:
        if self._at == "expect":
            fail()


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
        engine = Engine(backend, store, Limits(1))
        given = budget or RunBudget(LimitSettings())
        session = Session(config, tasks, store, engine, backend, cast(Pool, pool), demand=demand, budget=given)
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
    await check_death(runs, "the clock of limits.run_time", budget=BrokenClock(LimitSettings()))


class BrokenLog(logging.Handler):
    """Fails on what a worker tells; the standard handlers would swallow that."""

    def emit(self, record: logging.LogRecord) -> None:
        if "could not be closed" in record.getMessage():
            fail()


async def test_what_listens_to_a_worker(runs: Runs) -> None:
    log, broken = logging.getLogger("deskroll"), BrokenLog()
    log.addHandler(broken)
    try:
        with pytest.raises(
            BackgroundLost, match=r"what listens to worker \d+ died \(RuntimeError: boom in two lines\)"
        ):
            await asyncio.wait_for(
                runs.run(
                    script(ANSWER, latency=1.5), questions(3, odd="close"), env="tests.rollout.parts:OddEnv",
                    backend="process", workers=1, num_rollouts=1,
                ),
                90,
            )  # fmt: skip
    finally:
        log.removeHandler(broken)


async def test_the_display_which_the_run_does_not_need(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    asked = itertools.count()
    async with runs.open(script(ANSWER), questions(1)) as session:

        def status() -> RunStatus:
            return session.status() if next(asked) else fail()

        with caplog.at_level(logging.WARNING, "deskroll"):
            async with Progress(Console(file=io.StringIO(), force_terminal=True), status).shown():
                told = "no progress is shown any more: RuntimeError: boom in two lines; the run goes on"
                await until(lambda: told in caplog.text, "it is told")


async def test_a_part_that_is_cancelled_from_within_is_dead_too() -> None:
    async def cancel_itself() -> None:
        raise asyncio.CancelledError

    async with in_background({"the part": cancel_itself()}) as died:
        assert str(await asyncio.wait_for(died, 60)).startswith("the part died (CancelledError)")


async def test_parts_end_with_the_block_and_that_is_no_death() -> None:
    ended = asyncio.Event()

    async def go_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def come_to_an_end() -> None:
        pass

    async with in_background({"one": go_on(), "another": come_to_an_end()}) as died:
        await asyncio.sleep(0)
    assert ended.is_set()
    assert not died.done()
