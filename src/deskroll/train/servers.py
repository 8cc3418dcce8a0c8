"""Whoever serves the model of a training run: a pool of its own, one elsewhere, or servers whose weights do not change.

Adapters are served side by side, each under a name: one version of them can be pinned, and goes on being served however
many newer ones come. Whole weights are changed in place: there is one version at a time.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from deskroll.host.listen import Listen
from deskroll.host.tokens import TOKEN_VARIABLE
from deskroll.models.router.client import RouterClient
from deskroll.models.vllm.pool import ModelServicePool
from deskroll.models.vllm.service import ask_reload


class OwnPool:
    """The run's own pool."""

    def __init__(self, pool: ModelServicePool) -> None:
        self.keeps_versions = pool.config.enable_lora
        self._pool = pool

    async def reload(self, folder: Path) -> object:
        """See `Servers`."""
        return await self._pool.reload(folder)

    @asynccontextmanager
    async def pinned(self, version: int) -> AsyncIterator[str]:
        """See `Servers`."""
        async with _pinned(self._pool.address, version, self.keeps_versions) as name:
            yield name


class PoolElsewhere:
    """A pool that `deskroll models up` serves on this machine: it is told to load the weights of each step."""

    def __init__(self, at: str, *, adapters: bool) -> None:
        self.keeps_versions = adapters
        self._at = at

    async def reload(self, folder: Path) -> object:
        """See `Servers`."""
        return await ask_reload(self._at, str(folder.absolute()))

    @asynccontextmanager
    async def pinned(self, version: int) -> AsyncIterator[str]:
        """See `Servers`."""
        async with _pinned(self._at, version, self.keeps_versions) as name:
            yield name


class Unrefreshed:
    """Servers whose weights do not change: of a run that takes no steps."""

    keeps_versions = False

    async def reload(self, folder: Path) -> object:
        """See `Servers`."""
        raise NotImplementedError(f"nobody takes the weights in {folder}")

    @asynccontextmanager
    async def pinned(self, version: int) -> AsyncIterator[str]:
        """See `Servers`."""
        yield ""


@asynccontextmanager
async def _pinned(at: str, version: int, adapters: bool) -> AsyncIterator[str]:
    """Over a connection of its own, with which the pin ends, whatever becomes of this process."""
    if not adapters:
        yield ""
        return
    listen = Listen.parse(at)
    token = "" if listen.is_unix else os.environ.get(TOKEN_VARIABLE, "")
    async with RouterClient(listen, token) as router, router.pinned(str(version)) as name:
        yield name
