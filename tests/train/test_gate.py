"""One gate over baseline, training and evaluations: no more groups, and no more desktops, than it allows, whoever asks.

Counted at simulated desktops, of which there are more than enough. `make soak` keeps at it for half an hour
(DESKROLL_SOAK).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deskroll.models.scripted import Script
from deskroll.rollout.config import Resources
from deskroll.train.log import EvalRecord
from deskroll.train.staleness import Pace
from tests.rollout.conftest import until
from tests.rollout.storm import SOAK
from tests.train.census import Census
from tests.train.parts import Training, tasks, training
from tests.train.timed_env import ENV, lognormal, reply

GROUP = 4
SHAKEN_S = 1800.0 if SOAK else 4.0
"""For how long limits change all the time."""
MEDIAN_S = 1.0 if SOAK else 0.1
"""Of an episode."""
KINDS = 50
TIMES = [reply(seconds, n / KINDS) for n, seconds in enumerate(lognormal(MEDIAN_S, 0.4, KINDS))]
SCRIPT = Script.parse({"replies": [{"turns": [{"text": reply(0.0, 0.0), "by_seed": TIMES}]}]})
MOST = 9
"""Groups, whatever limit is tried."""


def resources(limit: int) -> Resources:
    """More desktops and permits for episodes than any limit on groups comes to."""
    return Resources(
        backend="inline", provider="sim", provider_options={"boot": "0.01", "reset": "0.003"},
        num_vms=(MOST + 1) * GROUP, num_rollouts=(MOST + 1) * GROUP, max_concurrent_rollouts=limit,
    )  # fmt: skip


class Gate:
    """A training run with evaluations beside it, for as long as it is wanted."""

    def __init__(self, run: Training, census: Census, work: asyncio.Task[None]) -> None:
        self.run, self.census, self._work = run, census, work

    async def is_so(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for something; where the run ends before, that is told."""
        await until(lambda: self._work.done() or condition(), what)
        if self._work.done():
            self._work.result()

    async def keep_within(self, limit: int) -> tuple[int, int]:
        """Change the limit; the most groups and desktops in flight since it holds, once enough of them have run."""
        runtime, census = self.run.loop.runtime, self.census
        runtime.change_limits(None, limit)
        await self.is_so("what was too much has ended", lambda: runtime.engine.limits.groups.used <= limit)
        census.forget()
        wanted = census.leases.total() + 2 * limit * GROUP
        await self.is_so("the run goes on", lambda: census.leases.total() >= wanted)
        return census.groups, census.desktops


@asynccontextmanager
async def gated(folder: Path, limit: int, pace: Pace) -> AsyncIterator[Gate]:
    census = Census()
    async with training(
        folder, script=SCRIPT, pace=pace, env=ENV, resources=resources(limit), sink=census, group_size=GROUP,
        steps=1_000_000, baseline=True, eval_every=2, eval_tasks=tasks(20, "e"),
    ) as run:  # fmt: skip
        work = asyncio.create_task(run.loop.run())
        try:
            yield Gate(run, census, work)
        finally:
            work.cancel()
            await asyncio.wait((work,))


@pytest.mark.timeout(SHAKEN_S + 300)
async def test_five_groups_and_their_desktops_are_the_most_while_limits_change(tmp_path: Path) -> None:
    dice, seen = random.Random(1), dict[int, list[tuple[int, int]]]()
    async with gated(tmp_path, 5, Pace(groups_per_batch=2, most_behind=4)) as gate:
        await gate.is_so("two evaluations were made", lambda: gate.run.loop.step >= 3)
        await gate.is_so("as many are in flight as may", lambda: gate.census.groups == 5)
        assert 5 < gate.census.desktops <= 5 * GROUP
        end = time.monotonic() + SHAKEN_S
        while time.monotonic() < end:
            for limit in (dice.randint(1, MOST), 5):
                groups, desktops = await gate.keep_within(limit)
                assert groups <= limit
                assert desktops <= limit * GROUP
                seen.setdefault(limit, []).append((groups, desktops))
        made = [each for each in gate.run.loop.log.records if isinstance(each, EvalRecord)]
        print(f"{gate.run.loop.step} steps, {len(made)} evaluations, leases {dict(gate.census.leases)}")
    assert gate.census.beside, "both phases had desktops at once"
    assert all((each.episodes, len(each.versions)) == (20, 1) for each in made)
    for limit, found in sorted(seen.items()):
        groups, desktops = map(max, zip(*found, strict=True))
        print(f"limit {limit}, {len(found)} times: at most {groups} groups and {desktops} desktops")


async def test_two_groups_of_four_have_eight_desktops(tmp_path: Path) -> None:
    async with gated(tmp_path, 2, Pace(groups_per_batch=2)) as gate:
        await gate.is_so("an evaluation was made", lambda: gate.run.loop.step >= 3)
        await gate.is_so("both groups of a batch are begun at once", lambda: gate.census.desktops == 2 * GROUP)
        assert gate.census.groups == 2
