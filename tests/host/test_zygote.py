"""A zygote: what its forks are given, how their ends are told, and who ends with whom."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from deskroll.errors import BackendLost, WorkerLost
from deskroll.host.zygote import Fork, ZygoteHandle
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent.parent
FORKS = "tests.host.zygote_forks"


def zygote(function: str, *, bound: bool = True, prepare: bool = False) -> ZygoteHandle:
    named = f"{FORKS}:prepare" if prepare else ""
    return ZygoteHandle(
        f"{FORKS}:{function}",
        forks="thing",
        refused=WorkerLost,
        gone=BackendLost,
        prepare=named,
        bound=bound,
        environment={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@asynccontextmanager
async def lingering(*, bound: bool) -> AsyncIterator[tuple[ZygoteHandle, Fork]]:
    """A zygote with a fork that stays."""
    async with zygote("linger", bound=bound) as handle:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            fork = await handle.fork(files=[theirs.fileno()])
            theirs.close()
            assert await asyncio.to_thread(ours.recv, 10) == b"here"
            yield handle, fork


async def test_a_fork_gets_a_message_and_files_and_its_end_is_told() -> None:
    async with zygote("answer", prepare=True) as handle:
        for count in (1, 3):
            ours, theirs = socket.socketpair()
            with ours, theirs:
                fork = await handle.fork(b"hello", [theirs.fileno()] * count)
                theirs.close()
                assert await asyncio.to_thread(ours.recv, 100) == b"%d 1 hello" % count
            assert await asyncio.wait_for(fork.end, 30) == count


async def test_many_at_once_each_get_their_own() -> None:
    """More than the socket holds at a time."""
    async with zygote("answer") as handle:

        async def one(number: int) -> bytes:
            ours, theirs = socket.socketpair()
            with ours, theirs:
                await handle.fork(b"%d" % number + b" " * 20_000, [theirs.fileno()])
                theirs.close()
                return (await asyncio.to_thread(ours.recv, 100)).split()[2]

        assert await asyncio.gather(*map(one, range(100))) == [b"%d" % number for number in range(100)]


async def test_what_a_fork_raises_is_among_the_last_words() -> None:
    async with zygote("fail") as handle:
        assert await asyncio.wait_for((await handle.fork(b"it went wrong")).end, 30) == 70
        assert "ValueError: it went wrong" in handle.last_words()


async def test_a_signal_that_ends_a_fork_is_told() -> None:
    async with lingering(bound=True) as (_, fork):
        os.kill(fork.pid, signal.SIGTERM)
        assert await asyncio.wait_for(fork.end, 30) == -signal.SIGTERM


@pytest.mark.parametrize("bound", [True, False])
async def test_who_ends_with_a_killed_zygote(bound: bool) -> None:
    async with lingering(bound=bound) as (handle, fork):
        process = psutil.Process(fork.pid)
        parent = process.parent()
        assert parent is not None
        parent.kill()
        if bound:
            assert await asyncio.wait_for(fork.end, 30) == -signal.SIGKILL
            wait_until(lambda: not process.is_running(), "the fork is gone with it")
        else:
            await asyncio.wait([fork.end], timeout=30)
            assert fork.end.cancelled(), "nobody can tell it any more"
            assert process.is_running()
            process.kill()
        assert not handle.alive()
        with pytest.raises(BackendLost, match="the process that starts things was killed"):
            await handle.fork(files=[0])


async def test_every_bound_fork_ends_with_the_block() -> None:
    async with lingering(bound=True) as (_, fork):
        process = psutil.Process(fork.pid)
    wait_until(lambda: not process.is_running(), "the fork is gone")


def command_of(process: psutil.Process) -> list[str]:
    """Nothing of one that has ended, of which other tests may have left some."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


async def test_a_zygote_that_may_open_no_more_files_refuses_and_goes_on() -> None:
    async with zygote("answer") as handle:
        probe, other = socket.socketpair()
        with probe, other:
            first = await handle.fork(files=[other.fileno()])
            await first.end
            (pid,) = [each.pid for each in psutil.Process().children() if f"{FORKS}:answer" in command_of(each)]
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (psutil.Process(pid).num_fds(), 4096))
            with pytest.raises(WorkerLost, match=r"no thing can be started: .*Too many open files"):
                await handle.fork(files=[other.fileno()] * 3)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (4096, 4096))
            fork = await handle.fork(files=[other.fileno()])
            assert await asyncio.wait_for(fork.end, 30) == 1


async def test_a_zygote_that_cannot_import_says_why() -> None:
    with pytest.raises(WorkerLost, match=r"(?s)the process that starts things died: .*No module named .nowhere"):
        async with ZygoteHandle("nowhere:run", forks="thing", refused=WorkerLost, gone=BackendLost):
            pass
