"""Background work cannot die unseen: it ends what it serves, or is started again, and either is said in one line."""

from __future__ import annotations

import asyncio
import logging

import pytest

from deskroll.errors import BackgroundLost
from deskroll.host.supervise import Supervisor, supervise
from tests.waiting import eventually, kill_task, tasks_named


async def test_a_part_that_is_cancelled_from_within_is_dead_too() -> None:
    async def cancel_itself() -> None:
        raise asyncio.CancelledError

    async with supervise({"the part": cancel_itself()}, "that is all") as died:
        assert str(await asyncio.wait_for(died, 60)) == "the part died (CancelledError), and that is all"


async def test_parts_end_with_the_block_and_that_is_no_death() -> None:
    ended = asyncio.Event()

    async def go_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def come_to_an_end() -> None:
        pass

    async with supervise({"one": go_on(), "another": come_to_an_end()}, "that is all") as died:
        await asyncio.sleep(0)
    assert ended.is_set()
    assert not died.done()


async def go_on_for_ever() -> None:
    await asyncio.Event().wait()


async def fail() -> None:
    raise ValueError("boom\nin two lines")


async def test_each_death_is_told_with_its_reason_and_what_follows() -> None:
    told: list[BackgroundLost] = []
    supervisor = Supervisor(told.append, so="so it is")
    supervisor.start("this", fail())
    supervisor.start("that", go_on_for_ever())
    await kill_task("that")

    async def both() -> bool:
        return len(told) == 2

    await eventually(both, "both are told")
    await supervisor.close()
    assert [str(each) for each in told] == [
        "this died (ValueError: boom in two lines), and so it is", "that died (CancelledError), and so it is"
    ]  # fmt: skip
    assert isinstance(told[0].__cause__, ValueError)


async def test_what_is_kept_is_started_again_whenever_it_dies(caplog: pytest.LogCaptureFixture) -> None:
    supervisor, begun = Supervisor(), 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun == 2:
            await fail()
        await go_on_for_ever()

    async def has_begun() -> bool:
        return begun > 0

    async def has_begun_again() -> bool:
        return begun == 3

    with caplog.at_level(logging.WARNING, "deskroll"):
        supervisor.keep("the part", work)
        supervisor.keep("the part", fail)  # it is kept already
        await eventually(has_begun, "it has begun")
        await kill_task("the part")
        await eventually(has_begun_again, "it was started again after both deaths")
    assert caplog.messages == [
        "the part died (CancelledError), and is started again",
        "the part died (ValueError: boom in two lines), and is started again",
    ]
    await supervisor.close()
    assert tasks_named("the part") == [], "nothing is started again after the end"


async def test_what_fails_while_it_is_ended_is_said_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    told: list[BackgroundLost] = []
    supervisor, begun = Supervisor(told.append), asyncio.Event()

    async def fail_late() -> None:
        begun.set()
        try:
            await go_on_for_ever()
        finally:
            await fail()

    supervisor.start("the part", fail_late())
    await begun.wait()
    await supervisor.close()
    assert told == []
    assert "the part died (ValueError: boom in two lines), and nobody needs it any more" in caplog.text
