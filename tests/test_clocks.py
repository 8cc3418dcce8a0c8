"""Running time stands still while the loop does not run; a limit ends nothing for that."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time

import pytest

from deskroll.clocks import boot_time, running_time, time_limit
from tests.waiting import eventually

STALL_S = 0.6
"""Longer than the loop may be late, and than the limits below."""
DAY_S = 86400
A_DAY_AHEAD = ["unshare", "--user", "--map-root-user", "--time", f"--boottime={DAY_S}", "--fork", "--"]
"""Runs a program on a machine that seems to have slept for a day."""


def stand_still() -> float:
    """Keep the loop from running, as a process does that is stopped; returns for how long."""
    begun = time.monotonic()
    time.sleep(STALL_S)
    return time.monotonic() - begun


async def until_it_has_run(seconds: float) -> None:
    """Wait until the running clock has gone on by so much."""
    end = running_time() + seconds

    async def reached() -> bool:
        return running_time() > end

    await eventually(reached, f"the loop has run for {seconds:g} s")


async def test_time_in_which_the_loop_did_not_run_ends_nothing() -> None:
    loop = asyncio.get_running_loop()
    answer = loop.create_future()
    async with time_limit(0.4) as limit:
        loop.call_later(0.1, answer.set_result, "here")
        stand_still()
        assert await answer == "here"
    assert not limit.expired()


async def test_running_time_goes_on_with_the_loop_and_stands_still_with_it() -> None:
    begun = running_time()
    stood = stand_still()
    # It may go on until the loop is noticed to be late: not further, however long that lasts.
    assert running_time() - begun < stood * 0.75
    assert running_time() == running_time(), "it stands"
    await until_it_has_run(0.1)


async def test_a_limit_ends_a_block_that_takes_its_time() -> None:
    with pytest.raises(TimeoutError):
        async with time_limit(0.02) as limit:
            await asyncio.Event().wait()
    assert limit.expired()
    with pytest.raises(TimeoutError):
        async with time_limit(0):
            await asyncio.Event().wait()


async def test_a_limit_may_be_moved_and_does_not_outlive_its_block() -> None:
    async with time_limit(0.01) as limit:
        limit.allow(None)
        await until_it_has_run(0.02)
        assert limit.left is None
        limit.allow(0.01)
    troubles: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, trouble: troubles.append(trouble))
    await until_it_has_run(0.02)
    assert not limit.expired()
    assert troubles == [], "nobody tries to end what is over"


async def test_a_limit_that_is_extended_holds_later_and_then_it_does() -> None:
    async with time_limit(0.01) as limit:
        limit.extend(0.1)
        await until_it_has_run(0.05)
    assert not limit.expired()
    with pytest.raises(TimeoutError):
        async with time_limit(0.01) as limit:
            limit.extend(0.01)
            await asyncio.Event().wait()
    async with time_limit(None) as limit:
        limit.extend(1.0)
        assert limit.left is None


async def test_what_the_block_raises_and_who_cancels_it_pass_through() -> None:
    with pytest.raises(TimeoutError, match="its own"):
        async with time_limit(60) as limit:
            raise TimeoutError("its own")
    assert not limit.expired()

    async def work() -> None:
        async with time_limit(60):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def boot_time_elsewhere(*before: str) -> float:
    """What another process takes for the time since the boot."""
    command = [*before, sys.executable, "-c", "from deskroll.clocks import boot_time; print(boot_time())"]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)


def test_the_clock_of_the_boot_is_that_of_every_process() -> None:
    before = boot_time()
    assert before < boot_time_elsewhere() < boot_time()


def _can_be_ahead() -> bool:
    return bool(shutil.which("unshare")) and not subprocess.run([*A_DAY_AHEAD, "true"], check=False).returncode


@pytest.mark.skipif(not _can_be_ahead(), reason="this machine has no namespaces of time")
def test_the_clock_of_the_boot_goes_on_while_the_machine_sleeps() -> None:
    before = boot_time()
    assert before + DAY_S < boot_time_elsewhere(*A_DAY_AHEAD) < boot_time() + DAY_S


def test_without_a_loop_there_is_no_running_time() -> None:
    with pytest.raises(RuntimeError):
        running_time()


async def test_of_two_limits_the_one_that_is_over_ends_its_own_block() -> None:
    async with time_limit(60) as outer:
        with pytest.raises(TimeoutError):
            async with time_limit(0.05):
                await asyncio.Event().wait()
        assert not outer.expired()
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with time_limit(0.05), time_limit(60) as inner:
            await asyncio.Event().wait()
    assert not inner.expired()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0, "nobody has cancelled it"


async def test_who_is_cancelled_when_the_limit_is_over_stays_cancelled() -> None:
    async def limited() -> None:
        async with time_limit(0.01) as limit:
            try:
                await asyncio.Event().wait()
            finally:
                assert limit.expired()
                task.cancel()
                await asyncio.sleep(0)

    task = asyncio.create_task(limited())
    await asyncio.wait((task,))
    assert task.cancelled()
