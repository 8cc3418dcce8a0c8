"""Permits: never more than the limit, served by ticket, reserved shares kept, limits that change, groups that sleep."""

from __future__ import annotations

import asyncio
import logging
import random

import pytest

from deskroll.errors import ConfigError
from deskroll.rollout.limits import GroupPermit, Limits, Permits
from tests.rollout.conftest import until


async def test_whoever_waits_is_served_by_ticket() -> None:
    permits = Permits(1)
    assert await permits.acquire("eval", (0, 0))
    order: list[int] = []

    async def waiter(ticket: int) -> None:
        await permits.acquire("eval", (0, ticket))
        order.append(ticket)
        permits.release("eval")

    tasks = [asyncio.create_task(waiter(ticket)) for ticket in (5, 3, 9, 1)]
    await until(lambda: permits.waiting == 4, "all wait")
    permits.release("eval")
    await asyncio.gather(*tasks)
    assert order == [1, 3, 5, 9]
    assert permits.used == 0


async def test_a_reserved_share_is_not_given_to_another_phase() -> None:
    permits = Permits(3, {"eval": 1})
    assert await permits.acquire("train", (0, 0))
    assert await permits.acquire("train", (0, 1))
    third = asyncio.create_task(permits.acquire("train", (0, 2)))
    await asyncio.sleep(0)
    assert not third.done()
    assert await permits.acquire("eval", (0, 99)), "the reserved one is there at once, whatever its ticket"
    await asyncio.sleep(0)
    assert not third.done()
    permits.release("train")
    assert await third
    assert (permits.used_by("train"), permits.used_by("eval")) == (2, 1)


async def test_a_phase_with_a_reserve_may_use_more_than_it() -> None:
    permits = Permits(3, {"eval": 1})
    for ticket in range(3):
        assert await permits.acquire("eval", (0, ticket))
    assert permits.used_by("eval") == 3


async def test_limits_change_while_somebody_waits() -> None:
    permits = Permits(1)
    await permits.acquire("eval", (0, 0))
    waiting = [asyncio.create_task(permits.acquire("eval", (0, n))) for n in range(1, 4)]
    await until(lambda: permits.waiting == 3, "three wait")
    permits.resize(3)
    await until(lambda: permits.used == 3, "two of them are served")
    permits.resize(1)
    permits.release("eval")
    permits.release("eval")
    await asyncio.sleep(0)
    assert not waiting[2].done(), "what is held beyond the new limit is let go first"
    permits.release("eval")
    assert await waiting[2]


async def test_closing_tells_whoever_waits() -> None:
    permits = Permits(1)
    await permits.acquire("eval", (0, 0))
    waiting = asyncio.create_task(permits.acquire("eval", (0, 1)))
    await until(lambda: permits.waiting == 1, "it waits")
    permits.close("eval")
    assert await waiting is False
    assert await permits.acquire("eval", (0, 2)) is False


async def test_cancelling_a_waiter_loses_no_permit() -> None:
    """Also when it is cancelled in the moment in which it is served."""
    permits = Permits(1)
    for _ in range(20):
        await permits.acquire("eval", (0, 0))
        waiter = asyncio.create_task(permits.acquire("eval", (0, 1)))
        await asyncio.sleep(0)
        permits.release("eval")
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
        assert permits.used == 0


async def test_never_more_than_the_limit_over_all_phases() -> None:
    dice = random.Random(7)
    permits = Permits(5, {"eval": 2})
    held = most = 0

    async def life(phase: str) -> None:
        nonlocal held, most
        for _ in range(40):
            await permits.acquire(phase, (0, dice.randrange(100)))
            held += 1
            most = max(most, held)
            assert held <= 5
            for _ in range(dice.randrange(3)):
                await asyncio.sleep(0)
            held -= 1
            permits.release(phase)

    async with asyncio.TaskGroup() as group:
        for n in range(12):
            group.create_task(life("eval" if n % 3 == 0 else "train"))
    assert most == 5
    assert permits.used == permits.waiting == 0


async def test_a_group_gives_its_permit_back_while_all_of_it_sleeps() -> None:
    permits = Permits(1)
    first, second = GroupPermit(permits, "eval", 0), GroupPermit(permits, "eval", 1)
    assert await first.enter(2)
    blocked = asyncio.create_task(second.enter())
    await asyncio.sleep(0)
    first.leave()
    await asyncio.sleep(0)
    assert not blocked.done(), "one of the first group still runs"
    first.leave()
    assert await blocked, "all of the first group sleep"
    again = asyncio.create_task(first.enter())
    await asyncio.sleep(0)
    assert not again.done()
    second.leave()
    assert await again


async def test_the_documented_line_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "deskroll")
    limits = Limits(16, 8)
    limits.change(max_concurrent_rollouts=4)
    assert [record.getMessage() for record in caplog.records] == [
        "[Concurrency] Set max concurrent rollouts to 8",
        "[Concurrency] Set max concurrent rollouts to 4",
    ]


async def test_groups_follow_episodes_unless_they_are_set() -> None:
    limits = Limits(4)
    limits.change(num_rollouts=9)
    assert (limits.episodes.most, limits.groups.most) == (9, 9)


@pytest.mark.parametrize(("most", "reserved"), [(0, {}), (-1, {}), (2, {"eval": 3})])
def test_limits_that_make_no_sense_are_refused(most: int, reserved: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        Permits(most, reserved)


@pytest.mark.parametrize("change", [{"num_rollouts": 2}, {"max_concurrent_rollouts": 2}])
def test_no_change_leaves_a_phase_with_nothing_for_ever(change: dict[str, int]) -> None:
    limits = Limits(4, reserved={"train": 2})
    limits.open("train")
    with pytest.raises(ConfigError, match=r"of 2 in all, 2 are reserved \(train\).*allowed: 3 and more"):
        limits.change(**change)
    assert (limits.episodes.most, limits.groups.most) == (4, 4)
    limits.change(num_rollouts=3)
    assert limits.episodes.most == 3


@pytest.mark.parametrize(("samples", "groups"), [(1, 8), (3, 3), (4, 2), (16, 1)])
async def test_a_share_is_of_episodes_and_of_as_many_groups_as_they_come_to(samples: int, groups: int) -> None:
    limits = Limits(32, 12, reserved={"eval": 8})
    limits.open("eval", samples)
    limits.open("train", 4)
    for number in range(12 - groups):
        assert await limits.groups.acquire("train", (0, number))
    beyond = asyncio.create_task(limits.groups.acquire("train", (0, 50)))
    for number in range(groups):
        assert await limits.groups.acquire("eval", (0, 100 + number)), "each is there at once"
    assert not beyond.done()
    assert limits.groups.used_by("train") == 12 - groups
    limits.close("train")
    assert not await beyond


async def test_a_phase_whose_samples_are_not_known_yet_has_a_group_kept_for_it() -> None:
    limits = Limits(32, 4, reserved={"eval": 16})
    limits.open("train", 8)
    for number in range(3):
        assert await limits.groups.acquire("train", (0, number))
    beyond = asyncio.create_task(limits.groups.acquire("train", (0, 3)))
    await asyncio.sleep(0)
    assert not beyond.done()
    limits.open("eval", 8)
    assert await limits.groups.acquire("eval", (0, 9))
    limits.close("train")
    assert not await beyond


def test_a_share_that_comes_to_more_groups_than_there_are_is_refused() -> None:
    limits = Limits(32, 4, reserved={"eval": 16})
    with pytest.raises(ConfigError, match=r"phase 'eval' has 8 groups .* there are 4 in all: reserve fewer"):
        limits.open("eval", 2)
    limits.open("eval", 4)


async def test_whoever_is_refused_waits_no_longer_and_the_others_do() -> None:
    permits = Permits(1)
    assert await permits.acquire("eval", (0, 0))
    first, second = object(), object()
    waiting = [asyncio.create_task(permits.acquire("eval", (0, n), each)) for n, each in enumerate((first, second))]
    await until(lambda: permits.waiting == 2, "both wait")
    permits.refuse(first)
    assert not await waiting[0]
    permits.release("eval")
    assert await waiting[1]
    permits.refuse(second)  # too late: it has its permit
    assert permits.used == 1


async def test_a_closed_group_lets_nobody_in() -> None:
    permits = Permits(1)
    assert await permits.acquire("eval", (0, 0))
    group = GroupPermit(permits, "eval", (0, 1))
    waiting = [asyncio.create_task(group.enter()) for _ in range(3)]
    await until(lambda: permits.waiting == 1, "the first of them waits for the permit")
    group.close()
    assert await asyncio.gather(*waiting) == [False] * 3
    assert not await group.enter()
    assert (permits.used, permits.waiting) == (1, 0)
