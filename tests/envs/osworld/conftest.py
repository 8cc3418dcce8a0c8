"""Desktops and a web server for set-up steps."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.providers.local.provider import LocalProvider
from deskroll.desktops.providers.sim.provider import SimProvider
from deskroll.desktops.providers.sim.settings import SimSettings


@pytest_asyncio.fixture
async def sim() -> AsyncIterator[GuestDesktop]:
    async with SimProvider(SimSettings.model_validate({"boot": "0", "step": "0"})) as provider:
        address = await provider.boot(DesktopSpec(width=320, height=240))
        async with GuestDesktop(address) as guest:
            yield guest


@pytest_asyncio.fixture(scope="session")
async def local_provider(runtime_folder: Path) -> AsyncIterator[LocalProvider]:
    async with LocalProvider() as provider:
        yield provider


@pytest_asyncio.fixture
async def local(local_provider: LocalProvider) -> AsyncIterator[GuestDesktop]:
    address = await local_provider.boot(DesktopSpec(width=1024, height=768))
    try:
        async with GuestDesktop(address) as guest:
            yield guest
    finally:
        await local_provider.stop(address.id)


class Shelf:
    """A server of files that counts who asks, and can be slow or broken."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: Counter[str] = Counter()
        self.failing: dict[str, list[int]] = {}
        """Statuses to answer first, by path."""
        self.redirects: dict[str, str] = {}
        self.gate = asyncio.Event()
        """Bodies wait for it."""
        self.gate.set()
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked[request.path] += 1
        if self.failing.get(request.path):
            return web.Response(status=self.failing[request.path].pop(0))
        if request.path in self.redirects:
            return web.Response(status=302, headers={"Location": self.redirects[request.path]})
        if request.path not in self.files:
            return web.Response(status=404)
        response = web.StreamResponse()
        await response.prepare(request)
        data = self.files[request.path]
        await response.write(data[:1])
        await self.gate.wait()
        await response.write(data[1:])
        return response


@pytest_asyncio.fixture
async def shelf() -> AsyncIterator[Shelf]:
    found = Shelf()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.answer)
    async with TestServer(app) as server:
        found.url = str(server.make_url("")).rstrip("/")
        yield found
        found.gate.set()
