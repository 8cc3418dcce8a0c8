"""No desktop is booted or reset for nobody: what a run will still lease, its pool knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from deskroll.desktops.service import PoolService
from deskroll.host.listen import Listen
from deskroll.store.journal import DesktopChanged
from tests.desktops.pool.conftest import make_pool
from tests.rollout.conftest import ANSWER, CLICK, Runs, questions, script

SIM = {"env": "osworld", "provider": "sim", "provider_options": {"boot": "0.02", "reset": "0.02", "step": "0"}}
SIZES = [
    {"tasks": 1, "num_vms": 1, "num_rollouts": 1},
    {"tasks": 1, "num_vms": 6, "num_rollouts": 8},
    {"tasks": 2, "num_vms": 3, "num_rollouts": 2},
    {"tasks": 4, "num_vms": 7, "num_rollouts": 7},
    {"tasks": 4, "num_vms": 2, "num_rollouts": 8},
    {"tasks": 5, "num_vms": 5, "num_rollouts": 2},
    {"tasks": 7, "num_vms": 3, "num_rollouts": 3, "group_size": 2},
    {"tasks": 9, "num_vms": 4, "num_rollouts": 1},
    {"tasks": 12, "num_vms": 4, "min_vms": 1, "num_rollouts": 6},
    {"tasks": 30, "num_vms": 8, "num_rollouts": 16},
]


def made_and_leased(states: Iterable[object]) -> tuple[int, int]:
    """How often a desktop was made clean (by a boot or a reset), and how often one was leased."""
    counts = Counter(map(str, states))
    return counts["booting"] + counts["recycling"], counts["leased"]


def of_run(runs: Runs) -> tuple[int, int]:
    """Both, of a run that is over."""
    return made_and_leased(each.state for each in runs.read().records(DesktopChanged))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "-".join(map(str, size.values())))
async def test_as_many_desktops_are_made_as_are_leased(runs: Runs, size: dict[str, int]) -> None:
    fields = dict(size)
    episodes = await runs.run(script(CLICK, ANSWER), questions(fields.pop("tasks")), **SIM, **fields)
    assert len(episodes) == size["tasks"] * size.get("group_size", 1)
    assert of_run(runs) == (len(episodes), len(episodes))


async def test_attempts_that_are_made_again_count(runs: Runs) -> None:
    """Every desktop dies of the first action, so that each episode has several."""
    fields = {**SIM, "env": "tests.rollout.parts:DyingEnv", "num_vms": 3, "num_rollouts": 3}
    episodes = await runs.run(script(CLICK, ANSWER), questions(4), **fields)
    attempts = sum(each.attempt for each in episodes)
    assert attempts >= 8
    assert of_run(runs) == (attempts, attempts)


async def test_a_resume_boots_for_what_is_left(runs: Runs) -> None:
    tasks = questions(6)
    await runs.run(script(CLICK, ANSWER), tasks[:4], **SIM, num_vms=2)
    before = of_run(runs)
    await runs.run(script(CLICK, ANSWER), tasks, resume=True, force=True, **SIM, num_vms=5)
    assert (before, of_run(runs)) == ((4, 4), (6, 6))


async def test_workers_in_processes_of_their_own_lease_by_the_same_plan(runs: Runs) -> None:
    fields = {**SIM, "backend": "process", "workers": 2, "num_vms": 5, "num_rollouts": 5}
    await runs.run(script(CLICK, ANSWER), questions(7), **fields)
    assert of_run(runs) == (7, 7)


async def test_a_pool_for_everybody_is_told_too(runs: Runs, tmp_path: Path) -> None:
    """One without a least number of desktops makes none that the run does not lease."""
    pool = make_pool(num_vms=3, min_vms=0)
    at = f"unix:{tmp_path / 'pool.sock'}"
    async with pool, PoolService(pool, Listen.parse(at)):
        await runs.run(script(CLICK, ANSWER), questions(7), env="osworld", pool=at, num_rollouts=4)
    assert made_and_leased(each.state for each in pool.events.of("desktop.state")) == (7, 7)


async def test_real_desktops(runs: Runs) -> None:
    small = {"screen_width": 640, "screen_height": 400, "sleep_after_execution": 0.3}
    fields = {"env": "osworld", "provider": "local", "num_vms": 4, "num_rollouts": 3, "env_options": small}
    episodes = await runs.run(script(CLICK, ANSWER), questions(3), **fields)
    assert len(episodes) == 3
    assert of_run(runs) == (3, 3)
