"""A simulated desktop, and upstream's environment where it is installed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.providers.sim.provider import SimProvider
from deskroll.desktops.providers.sim.settings import SimSettings
from deskroll.envs.osworld.evaluate.upstream.judging import close_workers
from deskroll.envs.osworld.evaluate.upstream.place import find_environment


@pytest_asyncio.fixture
async def desktop() -> AsyncIterator[GuestDesktop]:
    """A simulated one."""
    async with SimProvider(SimSettings.model_validate({"boot": "0", "step": "0"})) as provider:
        address = await provider.boot(DesktopSpec(width=320, height=240))
        async with GuestDesktop(address) as guest:
            yield guest


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def upstream() -> AsyncIterator[None]:
    """Upstream's evaluators, warm for the whole session."""
    if find_environment() is None:
        pytest.skip("OSWorld's evaluators are not installed: deskroll osworld install")
    yield
    await close_workers()
