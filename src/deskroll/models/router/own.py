"""A router of a run's own: its model's servers, as the settings list them, asked for by all of its workers.

It lives in the process that serves the run's models, on a socket of this user's in the runtime folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from deskroll.errors import ConfigError
from deskroll.events import EventSink
from deskroll.host.listen import Listen
from deskroll.host.runtime_folder import make_scratch_folder
from deskroll.models.router.router import Router, Server
from deskroll.models.router.service import serve_router
from deskroll.models.settings import Address, ModelSettings, Vendor, read_address

_SOCKET = "router.sock"


@asynccontextmanager
async def open_own_router(settings: ModelSettings, vendor: Vendor, sink: EventSink | None) -> AsyncIterator[str]:
    """A router for the servers of these settings, for the length of the block; where it is asked."""
    folder = make_scratch_folder("router", _SOCKET)
    try:
        async with Router(
            sink=sink, affinity_margin=settings.affinity_margin, server_wait=settings.server_wait
        ) as router:
            for server in _servers(settings, vendor):
                router.add(server)
            async with serve_router(router, Listen(path=str(folder / _SOCKET))) as listen:
                yield str(listen)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _servers(settings: ModelSettings, vendor: Vendor) -> list[Server]:
    own = settings.resolved(os.environ, vendor)
    if settings.endpoints is None:
        return [_server(own, own, settings.name, settings.max_in_flight)]
    found = []
    for number, each in enumerate(settings.endpoints):
        address = read_address(each.url, f"endpoints.{number}.url", os.environ.get(each.key_env, ""))
        if each.key_env and address.key is None:
            raise ConfigError(f"endpoints.{number}.key_env names ${each.key_env}, which is not set")
        found.append(_server(address, own, each.name or settings.name, each.max_in_flight))
    return found


def _server(address: Address, own: Address, model: str, limit: int | None) -> Server:
    key = address.key or own.key
    return Server(
        url=address.shown, model=model, key="" if key is None else key.get_secret_value(), max_in_flight=limit
    )
