"""Real desktops for tests: one provider for the whole run, a new desktop for each test that asks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest_asyncio

from deskroll.desktops.base import Address, DesktopSpec
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.providers.local import places
from deskroll.desktops.providers.local.provider import LocalProvider

Boot = Callable[..., Awaitable[GuestDesktop]]


@pytest_asyncio.fixture(scope="session")
async def provider(runtime_folder: Path) -> AsyncIterator[LocalProvider]:
    async with LocalProvider() as local:
        yield local


@pytest_asyncio.fixture
async def boot(provider: LocalProvider) -> AsyncIterator[Boot]:
    """Boots desktops that are stopped when the test ends."""
    async with AsyncExitStack() as stack:

        async def start(spec: DesktopSpec = DesktopSpec(width=1024, height=768), timeout: float = 30.0) -> GuestDesktop:
            address = await provider.boot(spec)
            stack.push_async_callback(provider.stop, address.id)
            return await stack.enter_async_context(GuestDesktop(address, timeout=timeout))

        yield start


@pytest_asyncio.fixture
async def desktop(boot: Boot) -> GuestDesktop:
    return await boot()


def sandbox_pid(address: Address) -> int:
    """Process 1 of a desktop, as the host sees it."""
    notes = places.notebook().list()
    return next(note.sandbox_pid for note in notes if note.id == address.id)


def host_processes(address: Address) -> dict[str, psutil.Process]:
    """The desktop's processes as the host sees them, by name."""
    found = {"first": psutil.Process(sandbox_pid(address))}
    for process in keeper_of(address).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # some live for a moment only
            found[process.name()] = process
    return found


def keeper_of(address: Address) -> psutil.Process:
    """The process that keeps a desktop."""
    first = psutil.Process(sandbox_pid(address))
    bwrap = first.parent()
    assert bwrap is not None
    keeper = bwrap.parent()
    assert keeper is not None
    return keeper


def leftovers(desktop_id: str, folder: Path) -> list[str]:
    """Everything on the host that still belongs to a desktop."""
    found = [  # os.walk goes on where a folder vanishes meanwhile; rglob does not
        f"{where}/{name}"
        for where, folders, files in os.walk(folder)
        for name in (*folders, *files)
        if desktop_id in name
    ]
    groups = Path("/sys/fs/cgroup")
    found += [str(path) for path in (groups / "deskroll", *groups.glob("*/deskroll")) if (path / desktop_id).exists()]
    mark = f"DESKROLL_DESKTOP={desktop_id}"
    for process in psutil.process_iter():
        try:
            if desktop_id in " ".join(process.cmdline()) or process.environ().get("DESKROLL_DESKTOP") == desktop_id:
                found.append(f"{process.pid} {process.name()} {mark}")
        except psutil.Error:
            continue
    return found


def youngest_zygote() -> psutil.Process:
    """The zygote of keepers that was started last by this process."""
    zygotes = [child for child in psutil.Process().children() if "keeper:keep" in " ".join(child.cmdline())]
    return max(zygotes, key=lambda process: process.create_time())
