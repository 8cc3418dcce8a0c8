"""The pool through its public interface, on simulated desktops."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from deskroll.actions import Click
from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.lease import Lease
from deskroll.desktops.pool import Pool, PoolConfig, Quotas
from deskroll.desktops.providers.local.provider import LocalProvider
from deskroll.desktops.providers.sim.provider import SimProvider
from deskroll.desktops.providers.sim.settings import SimSettings
from deskroll.desktops.providers.sim.world import SimWorld
from deskroll.errors import ConfigError, GuestError, InputError, LeaseLost, NoDesktop
from deskroll.host.owner import Owner, host_id
from tests.desktops.pool.conftest import Open, SimPool, make_pool, settle
from tests.waiting import eventually, kill_task

OFFICE = DesktopSpec(snapshot="office")
HANG = {"step_hangs": "1"}


async def hold(pool: SimPool, stack: AsyncExitStack, **ask: object) -> Lease:
    return await stack.enter_async_context(pool.lease(**ask))  # type: ignore[arg-type]


async def test_a_holder_gets_a_clean_desktop_and_the_next_one_too(open_pool: Open) -> None:
    pool = await open_pool(num_vms=1)
    for _ in range(3):
        async with pool.lease() as lease:
            with pytest.raises(GuestError, match=r"404|no file|not"):
                await lease.desktop.read_file("/home/user/mark")
            await lease.desktop.write_file("/home/user/mark", b"mine")
            await lease.desktop.step([Click(x=10, y=10)])
    assert pool.world.boots == 1
    assert pool.world.resets >= 2


async def test_releasing_returns_at_once_and_the_reset_goes_on_behind(open_pool: Open) -> None:
    pool = await open_pool({"reset": "30"}, num_vms=1)
    loop = asyncio.get_running_loop()
    async with pool.lease():
        began = loop.time()
    assert loop.time() - began < 20
    assert (await pool.status()).states["recycling"] == 1


async def test_resets_do_not_hold_each_other_up(open_pool: Open) -> None:
    pool = await open_pool({"reset": "60"}, num_vms=20, max_booting=20)
    async with AsyncExitStack() as stack:
        for _ in range(20):
            await hold(pool, stack)
    await settle()
    assert (await pool.status()).states["recycling"] == 20


async def test_boots_run_side_by_side_within_their_bound(open_pool: Open) -> None:
    pool = await open_pool({"boot": "60"}, num_vms=20, max_booting=6)
    await settle()
    assert (await pool.status()).states["booting"] == 6
    assert pool.world.boots == 6


async def test_no_more_desktops_than_num_vms_are_ever_alive(open_pool: Open) -> None:
    pool = await open_pool({"recycling": "replace", "stop": "0.01"}, num_vms=3)

    async def holder() -> None:
        for _ in range(5):
            async with pool.lease() as lease:
                await lease.desktop.screenshot()

    await asyncio.gather(*(holder() for _ in range(10)))
    assert pool.world.peak_alive == 3
    assert pool.world.boots >= 50


async def test_the_queue_keeps_its_order(open_pool: Open) -> None:
    pool = await open_pool(num_vms=1)
    served: list[str] = []

    async def holder(name: str, priority: int, group: str) -> None:
        async with pool.lease(priority=priority, group=group):
            served.append(name)

    async with pool.lease(), asyncio.TaskGroup() as tasks:
        for name, priority, group in (
            ("a1", 0, "a"), ("b1", 0, "b"), ("a2", 0, "a"), ("urgent", 5, ""), ("b2", 0, "b"), ("a3", 0, "a"),
        ):  # fmt: skip
            tasks.create_task(holder(name, priority, group))
        await settle()
        assert (await pool.status()).waiting == 6
        tasks.create_task(pool.free(next(iter((await pool.status()).desktops)).id))
    assert served == ["urgent", "a1", "a2", "a3", "b1", "b2"]


async def test_thousands_are_served_in_the_order_in_which_they_came(open_pool: Open) -> None:
    pool = await open_pool({"boot": "0", "reset": "0"}, num_vms=1_000, max_booting=1_000)
    await pool.until_ready(1_000)
    served: list[int] = []
    go = asyncio.Event()

    async def holder(number: int) -> None:
        async with pool.lease():
            served.append(number)
            await go.wait()

    async with asyncio.TaskGroup() as tasks:
        for number in range(4_000):
            tasks.create_task(holder(number))
        await settle()
        status = await pool.status()
        assert (status.states["leased"], status.waiting) == (1_000, 3_000)
        go.set()
    assert served == list(range(4_000))


async def test_a_quota_holds_back_its_client_and_nobody_else(open_pool: Open) -> None:
    pool = await open_pool(num_vms=4, quotas=Quotas(named={"greedy": 2}))
    await pool.until_ready(4)
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        for _ in range(2):
            await hold(pool, stack, client="greedy")
        third = tasks.create_task(hold(pool, stack, client="greedy"))
        await settle()
        other = await hold(pool, stack, client="modest")
        status = await pool.status()
        assert (status.waiting, status.parked, status.states["ready"]) == (1, 1, 1)
        assert not third.done()
        first = next(desktop for desktop in status.desktops if desktop.client == "greedy")
        await pool.free(first.id)
        assert (await third).address.id != other.address.id


async def test_a_snapshot_that_is_asked_for_is_what_one_gets(open_pool: Open) -> None:
    pool = await open_pool({"snapshots": "office,games"}, num_vms=2)
    await pool.until_ready(2)
    asked = DesktopSpec().overridden({"snapshot": "office", "proxy": True})
    async with pool.lease(asked) as lease:
        assert lease.spec.snapshot == "office"
        assert lease.spec.proxy
        assert pool.world.desktops[lease.address.id].spec == asked
    async with pool.lease() as lease:
        assert pool.world.desktops[lease.address.id].spec == DesktopSpec()


async def test_another_size_takes_another_machine(open_pool: Open) -> None:
    pool = await open_pool(num_vms=1)
    await pool.until_ready(1)
    async with pool.lease(DesktopSpec(width=800, height=600)) as lease:
        assert (lease.address.width, lease.address.height) == (800, 600)
    assert pool.world.peak_alive == 1


@pytest.mark.parametrize(
    "asked", [{"snapshot": 5}, {"proxy": "perhaps"}, {"fixed_ip": None}], ids=["snapshot", "proxy", "fixed_ip"]
)
def test_an_env_config_that_makes_no_sense_is_a_clear_error(asked: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(asked))):
        DesktopSpec().overridden(asked)


async def test_what_can_never_be_served_is_refused_at_once(open_pool: Open) -> None:
    pool = await open_pool({"proxy": "false"}, num_vms=1)
    with pytest.raises(InputError, match="snapshot is 'nonsense'"):
        await pool.acquire(DesktopSpec(snapshot="nonsense"))
    with pytest.raises(InputError, match="proxy"):
        await pool.acquire(DesktopSpec(proxy=True))


async def test_nobody_gives_up_while_the_pool_is_healthy_unless_told_to(open_pool: Open) -> None:
    pool = await open_pool(num_vms=1)
    async with pool.lease():
        with pytest.raises(NoDesktop, match=r"within \d+\.\d s: 0 before it.*1 leased.*longer timeout"):
            await pool.acquire(timeout=0.05)
        waiting = asyncio.create_task(pool.acquire())
        await settle()
    pool.release((await waiting).id)


async def test_a_provider_that_keeps_failing_is_backed_off_and_reported(open_pool: Open) -> None:
    pool = await open_pool({"boot_fails": "1", "boot": "0"}, num_vms=4, backoff=0.02, give_up_after=4)
    with pytest.raises(NoDesktop, match=r"4 boots in a row failed, the last one with: .*boot"):
        await pool.acquire()
    failures = pool.events.of("desktop.boot_failed")
    assert failures[-1].in_a_row == 4
    assert failures[-1].pause_s > failures[-2].pause_s >= 0
    assert pool.world.boots <= 4 * 3 + 2, "single attempts from the third failure on"
    status = await pool.status()
    assert status.boot_failures >= 4
    assert "boot" in status.last_error


async def test_a_boot_that_hangs_or_leaks_leaves_nothing(open_pool: Open) -> None:
    pool = await open_pool(
        {"boot_hangs": "0.5", "boot_leaks": "0.3", "seed": "3"},
        num_vms=4,
        boot_timeout=0.5,
        backoff=0.01,
        backoff_max=0.1,
    )
    await pool.until_ready(4)
    assert pool.world.alive == 4


async def test_a_desktop_that_cannot_be_reset_is_replaced(open_pool: Open) -> None:
    pool = await open_pool({"reset_fails": "1"}, num_vms=1)
    seen = []
    for _ in range(3):
        async with pool.lease() as lease:
            seen.append(lease.address.id)
    assert len(set(seen)) == 3
    assert pool.events.of("desktop.broken")[0].during == "recycling"


async def test_a_reset_that_hangs_is_given_up(open_pool: Open) -> None:
    pool = await open_pool({"reset_hangs": "1"}, num_vms=1, reset_timeout=0.05)
    async with pool.lease():
        pass
    async with pool.lease():
        pass
    assert "did not finish within 0.05 s" in (await pool.status()).last_error


async def test_a_wedged_desktop_is_not_handed_out_again(open_pool: Open) -> None:
    pool = await open_pool({"step_hangs": "1", "reset_fails": "1"}, num_vms=1)
    async with pool.lease() as lease:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(lease.desktop.step([Click(x=1, y=1)]), 0.1)
        wedged = lease.address.id
    async with pool.lease() as lease:
        assert lease.address.id != wedged


async def test_a_desktop_that_dies_while_it_stands_ready_is_replaced(open_pool: Open) -> None:
    pool = await open_pool({"dies_idle": "0.7", "dies_after": "0.02", "seed": "1"}, num_vms=4)

    async def lost() -> bool:
        return len(pool.events.of("desktop.broken")) >= 3

    await eventually(lost, "desktops die")
    async with pool.lease() as lease:
        await lease.desktop.screenshot()


async def test_desktops_that_stand_ready_are_checked_from_time_to_time(open_pool: Open) -> None:
    pool = await open_pool(num_vms=1, check_every=0.05, check_timeout=0.2)
    await pool.until_ready(1)
    (desktop,) = pool.world.desktops.values()
    desktop.wedge()  # it answers nothing any more, and nobody is told

    async def replaced() -> bool:
        return desktop.id not in pool.world.desktops

    await eventually(replaced, "the wedged desktop is gone")
    async with pool.lease() as lease:
        assert lease.address.id != desktop.id


async def test_one_that_is_taken_back_by_force_is_fenced(open_pool: Open) -> None:
    pool = await open_pool(num_vms=1)
    async with pool.lease() as late:
        await late.desktop.screenshot()
        await pool.free(late.address.id)
        async with pool.lease() as next_one:
            assert next_one.address.id == late.address.id
            with pytest.raises(LeaseLost, match=f"{late.id}.*operator took it back"):
                await late.desktop.screenshot()
            await next_one.desktop.screenshot()


async def test_a_hard_fence_holds_against_one_who_was_not_told(open_pool: Open) -> None:
    pool = await open_pool(num_vms=1)
    async with pool.lease() as lease:
        deaf = Lease(lease.id, lease.address, lease.spec)
    async with pool.lease(), AsyncExitStack() as stack:
        stack.push_async_callback(deaf.close)
        with pytest.raises(LeaseLost, match="no longer valid"):
            await deaf.desktop.screenshot()


async def test_where_the_fence_is_timed_a_revoked_desktop_is_replaced(open_pool: Open) -> None:
    pool = await open_pool({"fence": "timed"}, num_vms=1)
    async with pool.lease() as late:
        await pool.free(late.address.id)
        async with pool.lease() as next_one:
            assert next_one.address.id != late.address.id


async def test_where_the_fence_is_timed_a_request_that_may_still_arrive_costs_the_machine(open_pool: Open) -> None:
    pool = await open_pool({"fence": "timed", **HANG}, num_vms=1)
    async with pool.lease() as lease:
        await lease.desktop.screenshot()
        first = lease.address.id
    async with pool.lease() as lease:
        assert lease.address.id == first, "all was answered: the machine stays"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(lease.desktop.step([Click(x=1, y=1)]), 0.05)
    async with pool.lease() as lease:
        assert lease.address.id != first


async def test_a_call_under_way_ends_with_its_lease(open_pool: Open) -> None:
    pool = await open_pool(HANG, num_vms=1)
    async with pool.lease() as lease, asyncio.TaskGroup() as tasks:

        async def step() -> None:
            with pytest.raises(LeaseLost, match="operator"):
                await lease.desktop.step([Click(x=1, y=1)])

        tasks.create_task(step())
        desktop = pool.world.desktops[lease.address.id]

        async def begun() -> bool:
            return desktop.used

        await eventually(begun, "the step has begun")
        await pool.free(lease.address.id)


@pytest.mark.parametrize("moment", range(0, 12, 2))
async def test_a_cancelled_request_holds_nothing(open_pool: Open, moment: int) -> None:
    pool = await open_pool({"boot": "0", "reset": "0"}, num_vms=1)
    for _ in range(10):
        waiting = asyncio.create_task(pool.acquire())
        for _ in range(moment):
            await asyncio.sleep(0)
        waiting.cancel()
        outcome = (await asyncio.gather(waiting, return_exceptions=True))[0]
        if isinstance(outcome, Lease):
            pool.release(outcome.id)
    async with pool.lease():
        pass
    await pool.until_ready(1)


async def test_closing_ends_every_wait_and_every_lease() -> None:
    pool = make_pool(num_vms=1)
    async with pool:
        lease = await pool.acquire()
        waiting = asyncio.create_task(pool.acquire())
        await settle()
    with pytest.raises(NoDesktop, match="closed"):
        await waiting
    with pytest.raises(LeaseLost, match="closed"):
        lease.remaining()
    with pytest.raises(NoDesktop, match="closed"):
        await pool.acquire()
    assert pool.world.alive == 0


async def test_an_elastic_pool_grows_and_shrinks_with_the_demand(open_pool: Open) -> None:
    pool = await open_pool(num_vms=5, min_vms=1, idle_after=0.1, check_every=10.0)
    await pool.until_ready(1)
    async with AsyncExitStack() as stack:
        for _ in range(5):
            await hold(pool, stack)
        assert pool.world.alive == 5
    await pool.until_ready(1)

    async def small() -> bool:
        return pool.world.alive == 1

    await eventually(small, "only the least number is left")


async def test_resizing_takes_nothing_from_anybody(open_pool: Open) -> None:
    pool = await open_pool(num_vms=3)
    await pool.until_ready(3)
    async with pool.lease() as lease:
        await pool.resize(1)
        await lease.desktop.screenshot()

        async def smaller() -> bool:
            return pool.world.alive == 1

        await eventually(smaller, "the idle ones are gone")
        await pool.resize(2)
        await pool.until_ready(1)
    with pytest.raises(InputError, match="0 to 0"):
        await pool.resize(0)


async def test_draining_lets_holders_finish_and_then_nothing_is_left(open_pool: Open) -> None:
    pool = await open_pool(num_vms=2)
    await pool.until_ready(2)
    async with pool.lease() as lease:
        await pool.drain()
        with pytest.raises(NoDesktop, match="drained"):
            await pool.acquire()
        await lease.desktop.screenshot()

    async def gone() -> bool:
        return pool.world.alive == 0

    await eventually(gone, "nothing is left")
    await pool.resize(1)
    async with pool.lease():
        pass


async def test_a_provider_that_breaks_in_unforeseen_ways_costs_desktops_only(open_pool: Open) -> None:
    class Odd(SimProvider):
        broken = 3

        async def check(self, address: object) -> None:
            if self.broken:
                self.broken -= 1
                raise RuntimeError("unforeseen")

    pool = SimPool(Odd(SimSettings.model_validate({"boot": "0"})), PoolConfig(num_vms=1, backoff=0.01))
    async with pool:
        assert (await pool.acquire()).address.id
        assert "RuntimeError: unforeseen" in (await pool.status()).last_error


async def test_what_a_dead_owner_left_is_adopted_or_removed_and_only_that() -> None:
    world = SimWorld()
    dead = Owner(host=host_id(), pid=2**22 + 1, start=1)
    killed, alive = (
        SimProvider(SimSettings.model_validate({"boot": "0"}), world=world, owner=owner) for owner in (dead, None)
    )
    async with AsyncExitStack() as stack:
        await killed.__aenter__()
        await stack.enter_async_context(alive)
        left = [(await killed.boot()).id for _ in range(4)]
        theirs = (await alive.boot()).id
        await killed.abandon()
        pool = await stack.enter_async_context(make_pool(world=world, num_vms=2))
        await pool.until_ready(2)

        async def tidy() -> bool:
            return len(world.desktops) == 3

        await eventually(tidy, "two are adopted, two are gone")
        assert theirs in world.desktops
        adopted = set(world.desktops) - {theirs}
        assert adopted < set(left)
        assert world.boots == 5
        async with pool.lease() as lease:
            assert lease.address.id in left
    assert world.violations == []


async def test_where_the_fence_is_timed_an_orphan_is_not_taken_over() -> None:
    """A holder of the dead owner's may still use it."""
    world = SimWorld()
    dead = Owner(host=host_id(), pid=2**22 + 1, start=1)
    killed = SimProvider(SimSettings.model_validate({"boot": "0", "fence": "timed"}), world=world, owner=dead)
    await killed.__aenter__()
    left = (await killed.boot()).id
    await killed.abandon()
    async with make_pool({"fence": "timed"}, world=world, num_vms=1) as pool, pool.lease() as lease:
        assert lease.address.id != left
        assert list(world.desktops) == [lease.address.id]


async def test_desktops_that_die_before_anybody_used_them_are_not_booted_for_ever(open_pool: Open) -> None:
    pool = await open_pool({"boot": "0", "dies_idle": "1", "dies_after": "0"}, num_vms=2, backoff=5.0)

    async def held_off() -> bool:
        return (await pool.status()).boot_failures >= 2

    await eventually(held_off, "it is seen that they die")
    assert pool.world.boots <= 6
    assert "boots: the last" in (await pool.status()).limit


async def test_where_no_desktop_can_be_stopped_requests_are_refused(open_pool: Open) -> None:
    sim = {"reset_fails": "1", "stop_fails": "1"}
    pool = await open_pool(sim, num_vms=1, backoff=0.01, backoff_max=0.02, give_up_after=3)
    async with pool.lease():
        pass
    with pytest.raises(NoDesktop, match="none of the 1 desktops can be stopped"):
        await pool.acquire()


async def test_a_listener_that_raises_harms_nobody(open_pool: Open, caplog: pytest.LogCaptureFixture) -> None:
    pool = await open_pool(num_vms=1)

    def emit(event: object) -> None:
        raise BrokenPipeError("nobody listens")

    pool.events.emit = emit
    for _ in range(3):
        async with pool.lease() as lease:
            await lease.desktop.screenshot()
    assert "could not be reported" in caplog.text


async def test_a_late_holder_reaches_no_port_either(open_pool: Open) -> None:
    pool = await open_pool(num_vms=1)
    async with pool.lease() as lease:
        await lease.desktop.screenshot()
        await pool.free(lease.address.id)
        with pytest.raises(LeaseLost):
            async with lease.desktop.forward(5000):
                pass


async def test_an_elastic_pool_stays_so_when_it_is_resized(open_pool: Open) -> None:
    pool = await open_pool(num_vms=4, min_vms=1)
    await pool.resize(6)
    status = await pool.status()
    assert (status.min_vms, status.num_vms) == (1, 6)
    with pytest.raises(ConfigError, match="100,000"):
        await pool.resize(10**12)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        ({"timeout": -1}, "timeout is -1"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"spec": DesktopSpec(width=1280.5)}, "width"),  # type: ignore[arg-type]
        ({"spec": {"width": 1280}}, "not a DesktopSpec"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(open_pool: Open, ask: dict[str, object], words: str) -> None:
    pool = await open_pool(num_vms=1)
    with pytest.raises(InputError, match=words):
        await pool.acquire(**ask)


async def test_time_is_accounted_for(open_pool: Open) -> None:
    pool = await open_pool({"reset": "0.005"}, num_vms=2)
    assert "nothing" in (await pool.status()).limit

    async def holder() -> None:
        for _ in range(3):
            async with pool.lease():
                await asyncio.sleep(0.1)

    await asyncio.gather(*(holder() for _ in range(6)))
    status = await pool.status()
    assert status.waits.count == 18
    assert status.waits.longest >= status.waits.p95 >= status.waits.p50 > 0
    assert 0.2 < status.utilisation < 1
    assert status.limit.startswith("desktops: ")
    for desktop in status.desktops:
        assert desktop.leases > 0
        assert sum(desktop.seconds.values()) == pytest.approx(status.alive_s / 2, rel=0.2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_vms": 0}, {"num_vms": 10**30}, {"num_vms": 2, "min_vms": 3}, {"max_booting": 0}, {"check_every": 0.0},
        {"idle_after": -5.0}, {"resource_timeout": float("nan")}, {"give_up_after": 0}, {"num_vms": 1.5},
        {"quotas": 3}, {"backoff": -1.0},
    ],
)  # fmt: skip
def test_a_config_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=list(wrong)[-1]):
        PoolConfig(**wrong)


def test_a_quota_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="quota of every client is 0"):
        Quotas(each=0)


def test_more_local_desktops_than_there_is_memory_for_are_refused() -> None:
    with pytest.raises(ConfigError, match="room for about"):
        Pool(LocalProvider(), PoolConfig(num_vms=90_000))


@pytest.mark.parametrize(("work", "slow"), [("boot", "boot"), ("revert", "reset")])
async def test_work_that_is_killed_ends_the_pool_and_every_wait(work: str, slow: str) -> None:
    """Nobody knows what such a desktop does any more: who waits for one is told, instead of waiting for ever."""
    pool = make_pool({slow: "1000"}, num_vms=1)
    with pytest.raises(NoDesktop, match=rf"^the pool broke: the pool's {work} of sim-\w+ died \(CancelledError\), and"):
        async with pool:
            if work == "revert":
                async with pool.lease():
                    pass
            waiting = asyncio.ensure_future(pool.acquire())
            (desktop,) = (await pool.status()).desktops
            await kill_task(f"the pool's {work} of {desktop.id}")
            with pytest.raises(NoDesktop, match="this is a bug"):
                await asyncio.wait_for(waiting, 30)
            await asyncio.wait_for(pool.until_closed(), 30)
            with pytest.raises(NoDesktop, match="the pool broke"):
                await pool.acquire()
    assert pool.world.alive == 0
