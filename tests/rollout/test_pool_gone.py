"""A pool that is served elsewhere and goes away: the run waits for it, then stops; no episode is spent on it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deskroll.desktops.service import PoolClient
from deskroll.errors import PoolGone
from deskroll.store.journal import Failed
from tests.rollout.conftest import CLICK, INFEASIBLE, Runs, questions, script, until

FAIL = {"tools": [{"name": "computer", "arguments": {"action_type": "FAIL"}}]}
EPISODES = 30


@pytest.fixture
def at(runtime_folder: Path) -> str:
    return f"unix:{runtime_folder}/gone.sock"


@contextlib.contextmanager
def served(at: str) -> Iterator[subprocess.Popen[str]]:
    """A pool in a process of its own."""
    command = [sys.executable, "-m", "deskroll", "pool", "serve", "--provider", "sim", "--num-vms", "3"]
    command += ["-o", "step=0.05", "--listen", at]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("pool of")
            yield process
        finally:
            process.kill()


SETTINGS = {
    "env": "osworld", "env_options": {"observation_type": "screenshot"}, "backend": "process", "workers": 2,
    "num_rollouts": 6, "retries": {"desktop": 1, "backoff": 0.01},
}  # fmt: skip


async def test_a_pool_that_comes_back_costs_no_episode_its_score(runs: Runs, at: str) -> None:
    tasks = questions(EPISODES, evaluator=INFEASIBLE)
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(served(at))
        async with runs.open(script(CLICK, FAIL), tasks, pool=at, **SETTINGS) as session:
            work = asyncio.create_task(session.run())
            await until(lambda: session.status().standing.done > 5, "some are done")
            pool.kill()
            await until(lambda: session.status().attention, "it is told")
            status = session.status()
            assert "the pool has served nobody" in status.attention[0]
            assert status.limit == "the pool, which serves nobody"
            await until(lambda: session.status().stages.get("desktop") == 6, "all of them wait")
            stack.enter_context(served(at))
            outcomes = await work
    assert [each.score.value for each in outcomes] == [1.0] * EPISODES
    assert {each.attempt for each in outcomes} <= {1, 2}, "at most what was under way is done again"


async def test_a_pool_that_stays_away_stops_the_run_which_can_be_resumed(runs: Runs, at: str) -> None:
    tasks = questions(EPISODES, evaluator=INFEASIBLE)
    with served(at) as pool:
        async with runs.open(script(CLICK, FAIL), tasks, pool=at, pool_wait=1.5, **SETTINGS) as session:
            work = asyncio.create_task(session.run())
            await until(lambda: session.status().standing.done > 5, "some are done")
            pool.kill()
            with pytest.raises(PoolGone, match=r"the pool has served nobody.* resume the run") as told:
                await work
            assert "\n" not in str(told.value)
    run = runs.read()
    assert {each.score.value for each in run.outcomes()} == {1.0}, "none was spent"
    assert 5 < len(run.outcomes()) < EPISODES
    with served(at):
        outcomes = await runs.run(script(CLICK, FAIL), tasks, resume=True, pool=at, **SETTINGS)
    assert [each.score.value for each in outcomes] == [1.0] * EPISODES


async def test_a_pool_that_is_drained_is_waited_for_too(runs: Runs, at: str) -> None:
    tasks = questions(EPISODES, evaluator=INFEASIBLE)
    with served(at):
        async with (
            runs.open(script(CLICK, FAIL), tasks, pool=at, **SETTINGS) as session,
            PoolClient(at) as operator,
        ):
            work = asyncio.create_task(session.run())
            await until(lambda: session.status().standing.done > 5, "some are done")
            await operator.drain()
            await until(lambda: session.status().attention, "it is told")
            assert "drained" in session.status().attention[0]
            await operator.resize(3)
            outcomes = await work
    assert [(each.score.value, each.attempt) for each in outcomes] == [(1.0, 1)] * EPISODES
    assert list(runs.read().records(Failed)) == []
