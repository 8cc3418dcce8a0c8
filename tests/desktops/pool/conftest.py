"""Pools of simulated desktops, and events to look at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest_asyncio

from deskroll.desktops.pool import Pool, PoolConfig
from deskroll.desktops.providers.sim.provider import SimProvider
from deskroll.desktops.providers.sim.settings import SimSettings
from deskroll.desktops.providers.sim.world import SimWorld
from deskroll.events import Event, kind_of
from tests.waiting import eventually

Open = Callable[..., Any]


class Events:
    """Remembers what was reported."""

    def __init__(self) -> None:
        self.all: list[Event] = []

    def emit(self, event: Event) -> None:
        self.all.append(event)

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.all if kind_of(event) == kind]


class SimPool(Pool):
    """A pool of simulated desktops that tests can ask about their world."""

    events: Events

    @property
    def world(self) -> SimWorld:
        provider = self.provider
        assert isinstance(provider, SimProvider)
        return provider.world

    async def until_ready(self, number: int) -> None:
        async def ready() -> bool:
            return (await self.status()).states.get("ready", 0) == number  # type: ignore[call-overload, no-any-return]

        await eventually(ready, f"{number} desktops are ready")


def make_pool(sim: dict[str, str] | None = None, *, world: SimWorld | None = None, **config: Any) -> SimPool:
    settings = SimSettings.model_validate({"boot": "0.01", "reset": "0.01", "step": "0", **(sim or {})})
    events = Events()
    pool = SimPool(SimProvider(settings, world=world, sink=events), PoolConfig(**config), sink=events)
    pool.events = events
    return pool


@pytest_asyncio.fixture
async def open_pool() -> AsyncIterator[Open]:
    """Opens pools that are closed when the test ends; none may have handed out anything dirty or twice."""
    pools: list[SimPool] = []
    async with AsyncExitStack() as stack:

        async def start(sim: dict[str, str] | None = None, **config: Any) -> SimPool:
            pool = make_pool(sim, **config)
            pools.append(pool)
            await stack.enter_async_context(pool)
            return pool

        yield start
    for pool in pools:
        assert pool.world.violations == []
        assert pool.world.alive == 0


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(20):
        await asyncio.sleep(0)
