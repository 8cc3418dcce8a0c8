"""A pool of real embedded desktops: nothing of one holder is there for the next, and nothing is ever left behind."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from deskroll.desktops.base import Address, DesktopSpec
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.pool import Pool, PoolConfig
from deskroll.desktops.providers.local import places
from deskroll.desktops.providers.local.provider import LocalProvider
from deskroll.desktops.service import PoolClient
from deskroll.errors import DesktopError, InputError
from tests.desktops.conftest import Boot, host_processes, leftovers
from tests.waiting import eventually, wait_until

SPEC = DesktopSpec(width=800, height=600)
CYCLES = 200
DESKTOPS = 4


@pytest_asyncio.fixture
async def pool(runtime_folder: Path) -> AsyncIterator[Pool]:
    async with Pool(LocalProvider(), PoolConfig(num_vms=DESKTOPS, spec=SPEC)) as pool:
        yield pool


LOOK = r"""
find "$HOME" /tmp /var/tmp /dev/shm -newermt 2000-01-01 -printf '%p\n' 2>/dev/null
echo ---
ps -eo comm=  # not through a pipe: whatever reads it would be seen or not, as it happens
"""


async def look(desktop: GuestDesktop) -> tuple[set[str], set[str], list[str], str]:
    """What a holder can see: files, programs, windows, the clipboard."""
    result = await desktop.run(LOOK)
    assert result.returncode == 0, result.error
    files, _, programs = result.output.partition("---\n")
    titles = [window.title for window in await desktop.windows()]
    return set(files.split("\n")), set(programs.split("\n")), titles, await desktop.read_clipboard()


async def make_dirt(desktop: GuestDesktop, mark: str) -> None:
    await desktop.write_file(f"/home/user/{mark}", b"dirt")
    await desktop.write_file(f"/tmp/{mark}", b"dirt")
    await desktop.write_clipboard(mark)
    await desktop.launch(["sleep", "86400"])
    await desktop.launch(["xterm", "-T", mark])

    async def shown() -> bool:
        return any(window.title == mark for window in await desktop.windows())

    await eventually(shown, "the window is there")


@pytest.mark.timeout(900)
async def test_two_hundred_holders_see_nothing_of_each_other(pool: Pool, runtime_folder: Path) -> None:
    async with pool.lease() as lease:
        files, programs, windows, clipboard = await look(lease.desktop)
    assert (windows, clipboard) == ([], "")
    used: list[str] = []

    async def hold(number: int) -> None:
        async with pool.lease() as lease:
            seen = await look(lease.desktop)
            assert seen[0] <= files, f"files that were not there before: {seen[0] - files}"
            assert seen[1] <= programs, f"programs that were not there before: {seen[1] - programs}"
            assert seen[2:] == ([], "")
            await make_dirt(lease.desktop, f"mark{number}")
            used.append(lease.address.id)

    async def one_after_another(first: int) -> None:
        for number in range(first, CYCLES, DESKTOPS + 1):
            await hold(number)

    async with asyncio.TaskGroup() as tasks:
        for first in range(DESKTOPS + 1):
            tasks.create_task(one_after_another(first))
    assert len(used) == len(set(used)) == CYCLES, "each had a desktop of its own"
    alive = {desktop.id for desktop in (await pool.status()).desktops}
    assert len(alive) <= DESKTOPS
    assert [found for desktop_id in set(used) - alive for found in leftovers(desktop_id, runtime_folder)] == []


@pytest.mark.parametrize("part", ["Xvfb", "openbox", "deskroll-guest"])
async def test_one_that_loses_a_part_while_it_stands_ready_is_replaced(pool: Pool, part: str) -> None:
    lost = (await ready(pool))[0]
    host_processes(Address(id=lost, endpoint=""))[part].kill()

    async def replaced() -> bool:
        return lost not in {desktop.id for desktop in (await pool.status()).desktops}

    await eventually(replaced, "it is replaced")
    async with pool.lease() as lease:
        await lease.desktop.screenshot()


async def ready(pool: Pool) -> list[str]:
    async def all_ready() -> list[str]:
        status = await pool.status()
        names = [desktop.id for desktop in status.desktops if desktop.state == "ready"]
        return names if len(names) == DESKTOPS else []

    return await eventually(all_ready, "all desktops are ready")


@pytest.mark.parametrize("what", ["screen", "disk", "memory"])
async def test_a_wedged_desktop_counts_as_broken(provider: LocalProvider, what: str) -> None:
    """Its server answers, but nothing works in it."""
    spec = DesktopSpec(width=640, height=480, disk_mb=64, memory_mb=300)
    address = await provider.boot(spec)
    try:
        await provider.check(address)
        async with GuestDesktop(address) as desktop:
            if what == "screen":
                host_processes(address)["Xvfb"].send_signal(signal.SIGSTOP)
            elif what == "disk":
                await desktop.run("head -c 1G /dev/zero > ~/full")
            else:
                if not (note := places.notebook().read(address.id)) or not note.cgroup:
                    pytest.skip("no control groups here: memory is limited by process")
                # What is killed for want of memory gives back a little only: what it had.
                eat = (
                    "for n in $(seq 40); do python3 -c 'x = bytearray(8 << 20); import time; time.sleep(86400)' & done"
                )
                await desktop.launch(["sh", "-c", eat])
        words = {
            "screen": "Xvfb|X server|answer",
            "disk": "no space left",
            "memory": "no memory left|gone|lost|died|killed|closed the connection",
        }

        async def broken() -> str:
            try:
                await provider.check(address)
            except DesktopError as error:
                return str(error)
            return ""

        message = await eventually(broken, f"a check finds that the {what} is wrong")
        assert re.search(words[what], message), message
    finally:
        await provider.stop(address.id)


# --- the pool's own process is killed ---


@contextmanager
def served(folder: Path, count: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`deskroll pool serve` in a process of its own, with its desktops ready."""
    env = {**os.environ, "DESKROLL_RUNTIME_DIR": str(folder)}
    command = [sys.executable, "-m", "deskroll", "pool", "serve", "--num-vms", str(count), "--size", "640x480"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            assert "pool of" in process.stdout.readline()
            yield process, f"unix:{folder / 'pool.sock'}"
        finally:
            process.kill()


async def ids(client: PoolClient, state: str, count: int) -> list[str]:
    async def enough() -> list[str]:
        found = [desktop.id for desktop in (await client.status()).desktops if desktop.state == state]
        return found if len(found) == count else []

    return await eventually(enough, f"{count} desktops are {state}")


async def test_a_killed_pool_leaves_nothing_for_long_and_touches_nobody_else(boot: Boot, runtime_folder: Path) -> None:
    """Its desktops end by themselves; the next pool starts at once, beside a desktop of another live owner."""
    ours = await boot(SPEC)
    with served(runtime_folder, 3) as (first, at):
        async with PoolClient(at) as client:
            left = await ids(client, "ready", 3)
            async with client.lease() as lease:
                await lease.desktop.launch(["sleep", "86400"])
                first.kill()
                with pytest.raises(DesktopError):
                    while True:
                        await lease.desktop.screenshot()
            with served(runtime_folder, 3):
                fresh = await ids(client, "ready", 3)
                assert not set(fresh) & set(left)

                async def gone() -> bool:
                    return not any(leftovers(desktop_id, runtime_folder) for desktop_id in left)

                await eventually(gone, "nothing of the killed pool is left")
                await ours.check()


@pytest.mark.parametrize("by", ["next pool", "reap"])
@pytest.mark.parametrize("keepers", ["stopped", "killed"])
async def test_what_is_left_when_the_keepers_cannot_clean_up_is_reaped(
    boot: Boot, runtime_folder: Path, keepers: str, by: str
) -> None:
    """The owner and those who would clean up after it are out of action at the same moment."""
    ours = await boot(SPEC)
    with served(runtime_folder, 2) as (owner, at):
        async with PoolClient(at) as client:
            left = await ids(client, "ready", 2)
        notes = {note.id: note for note in places.notebook().list()}
        processes = [psutil.Process(notes[desktop_id].keeper_pid) for desktop_id in left]
        for process in processes:
            process.suspend()
        owner.kill()
        owner.wait()
        if keepers == "killed":
            for process in processes:
                process.kill()
        assert all(leftovers(desktop_id, runtime_folder) for desktop_id in left), "there is something to reap"
        if by == "reap":
            listed = reap("--dry-run")
            assert sorted(note["id"] for note in listed) == sorted(left)
            assert sorted(note["id"] for note in reap()) == sorted(left)
        else:
            with served(runtime_folder, 2):
                async with PoolClient(at) as client:
                    await ids(client, "ready", 2)
        wait_until(lambda: not any(leftovers(desktop_id, runtime_folder) for desktop_id in left), "nothing is left")
        wait_until(lambda: reap("--dry-run") == [], "nothing is left to reap, of the second pool neither")
        await ours.check()


def reap(*options: str) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "deskroll", "desktops", "reap", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


async def test_a_holder_that_is_killed_loses_its_desktop_with_all_it_did(runtime_folder: Path) -> None:
    with served(runtime_folder, 1) as (_, at):
        command = [sys.executable, "-m", "tests.desktops.pool.holder", at, "1"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            (held,) = json.loads(holder.stdout.readline())
            holder.kill()
        async with PoolClient(at) as client, client.lease() as lease:
            assert lease.address.id != held
            assert leftovers(held, runtime_folder) == []


async def test_a_request_that_local_desktops_cannot_serve_is_refused(pool: Pool) -> None:
    for asked in ({"snapshot": "office"}, {"proxy": True}, {"fixed_ip": True}):
        with pytest.raises(InputError, match=next(iter(asked))):
            await pool.acquire(SPEC.overridden(asked))
