"""Desktops: where the desktops of a runtime come from: a pool of its own, or one that is served elsewhere.

Guarantees: nothing is started before somebody needs a desktop; workers know from the start where the pool will answer;
the pool is opened and closed by one task, whoever needed it first. Whoever leases here waits for it to be open.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.lease import Lease
from deskroll.desktops.pool import Pool, PoolConfig
from deskroll.desktops.providers import make_provider
from deskroll.desktops.providers.choice import choose
from deskroll.desktops.service import PoolClient, PoolService
from deskroll.desktops.settings import PoolSettings
from deskroll.errors import NoDesktop
from deskroll.events import EventSink
from deskroll.host.listen import Listen
from deskroll.rollout.config import Resources
from deskroll.rollout.control import socket_path

_LONGER_S = 60.0


class Desktops:
    """Use with `async with`; `open` when desktops are needed."""

    def __init__(self, resources: Resources, sink: EventSink) -> None:
        self.pool: Pool | PoolClient | None = None
        """None until it is open."""
        self.plan = f"run-{secrets.token_hex(6)}" if resources.pool else ""
        """Under which name a pool elsewhere is told how many leases there will be; empty: the pool is our own."""
        self.at = resources.pool or f"unix:{socket_path(secrets.token_hex(3), 'pool')}"
        """Where it answers."""
        self.wait = resources.pool_wait + _LONGER_S
        """How long an attempt waits for a pool that serves nobody: longer than the run does, which stops then."""
        self._resources = resources
        self._sink = sink
        self._opened: asyncio.Future[None] | None = None
        """Done once it is open; None while nobody has asked for it."""
        self._closing = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Desktops:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._closing.set()
        if self._keeper is not None:
            if self.pool is None:
                self._keeper.cancel()  # nobody waits any more for it to open
            await asyncio.wait((self._keeper,))
            if not self._keeper.cancelled():
                self._keeper.result()

    async def open(self, wanted: Mapping[DesktopSpec, int], *, all_told: bool = False) -> None:
        """Have desktops of these kinds; `all_told`: so many leases there will be, and no others."""
        if self._opened is None:
            self._opened = asyncio.get_running_loop().create_future()
            self._keeper = asyncio.create_task(self._keep(Counter(wanted), self._opened, all_told=all_told))
        await asyncio.shield(self._opened)  # others may wait for it, too
        if isinstance(self.pool, Pool):
            for kind in wanted:
                self.pool.provider.check_spec(kind)

    def lease(
        self, spec: DesktopSpec | None = None, *, priority: int = 0, group: str = "", timeout: float | None = None
    ) -> AbstractAsyncContextManager[Lease]:
        """Wait for a desktop and hold it for the length of the block."""
        if self.pool is None:
            raise NoDesktop("this runtime has no desktops yet: no job said that it needs one")
        return self.pool.lease(spec, priority=priority, group=group, timeout=timeout)

    async def expect(self, leases: Mapping[DesktopSpec, int]) -> None:
        """So many leases there will be in all."""
        if self.pool is not None:
            await self.pool.expect(leases)

    async def _keep(self, wanted: Counter[DesktopSpec], opened: asyncio.Future[None], *, all_told: bool) -> None:
        try:
            async with self._open(wanted, all_told=all_told) as self.pool:
                opened.set_result(None)
                await self._closing.wait()
        except BaseException as error:
            if opened.done():
                raise
            self._opened = None  # the next one who needs it may try again
            opened.set_exception(error if isinstance(error, Exception) else NoDesktop("the runtime was closed"))
            opened.exception()  # whoever asked may be gone
        finally:
            self.pool = None

    @asynccontextmanager
    async def _open(self, wanted: Counter[DesktopSpec], *, all_told: bool) -> AsyncIterator[Pool | PoolClient]:
        if self._resources.pool:
            async with PoolClient(self.at, wait=self.wait, plan=self.plan) as client:
                await client.status()
                if all_told:
                    await client.expect(wanted)
                yield client
            return
        kinds = [kind for kind, _ in wanted.most_common()]
        size = {name: getattr(self._resources, name) for name in PoolSettings.model_fields}
        config = PoolConfig(spec=kinds[0], **size)
        chosen = choose(self._resources.provider, self._resources.provider_options, os.environ)
        provider = make_provider(chosen.name, chosen.options, self._sink)
        for kind in kinds[1:]:
            provider.check_spec(kind)
        pool = Pool(provider, config, sink=self._sink, expected=wanted if all_told else None)
        async with pool, PoolService(pool, Listen.parse(self.at)):
            yield pool
