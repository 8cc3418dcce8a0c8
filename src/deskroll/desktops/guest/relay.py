"""Serves a desktop's guest on a TCP address, by carrying bytes to the unix socket that it listens on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from deskroll.desktops.base import Address
from deskroll.host.relay import carry, serve_connections

_GONE = (
    b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
)


@asynccontextmanager
async def relay_guest(address: Address, host: str, port: int) -> AsyncIterator[int]:
    """Serve one desktop for the length of the block; yields the port, which leaving closes with every connection."""
    message = f"desktop {address.id} is gone; start another one"
    gone = msgspec.json.encode({"status": "error", "message": message, "error": message, "lost": True})

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            guest = await asyncio.open_unix_connection(address.endpoint.removeprefix("unix:"))
        except OSError:
            writer.write(_GONE % (len(gone), gone))
            return
        await carry((reader, writer), guest)

    async with serve_connections(serve, host=host, port=port) as server:
        bound: int = server.sockets[0].getsockname()[1]
        yield bound
