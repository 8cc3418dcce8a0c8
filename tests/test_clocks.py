"""Running time stands still while the loop does not run; a limit ends nothing for that."""

from __future__ import annotations

import asyncio
import time

import pytest

from deskroll.clocks import boot_time, running_time, time_limit


async def test_time_in_which_the_loop_did_not_run_ends_nothing() -> None:
    loop = asyncio.get_running_loop()
    answer = loop.create_future()
    async with time_limit(0.5) as limit:
        loop.call_later(0.1, answer.set_result, "here")
        time.sleep(1.0)
        assert await answer == "here"
    assert not limit.expired()


async def test_running_time_goes_on_with_the_loop_and_stands_still_with_it() -> None:
    begun = running_time()
    time.sleep(1.0)
    assert running_time() - begun < 0.5
    stood = running_time()
    while running_time() < stood + 0.1:
        await asyncio.sleep(0.01)


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
        await asyncio.sleep(0.03)
        assert limit.left is None
        limit.allow(0.01)
    await asyncio.sleep(0.03)
    assert not limit.expired()


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


def test_the_clock_of_the_boot_is_that_of_every_process() -> None:
    assert boot_time() >= time.monotonic() - 1.0
    with pytest.raises(RuntimeError):
        running_time()  # without a loop there is none that could run
