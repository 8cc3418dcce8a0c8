"""Reaching a TCP port inside a desktop: a listener on loopback, each connection carried to the guest by a WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp

from deskroll.desktops.base import Address
from deskroll.desktops.guest.transport import Transport

_CHUNK = 64 * 1024


@asynccontextmanager
async def forward_through_guest(transport: Transport, port: int) -> AsyncIterator[tuple[str, int]]:
    """Listen on a free loopback port for as long as the block lasts; closing it closes every connection."""
    connections: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            connections.add(task)
            task.add_done_callback(connections.discard)
        await _carry(transport, port, reader, writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, local_port = server.sockets[0].getsockname()[:2]
    try:
        yield host, local_port
    finally:
        server.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


@asynccontextmanager
async def forward_direct(address: Address, port: int) -> AsyncIterator[tuple[str, int]]:
    """A stock guest's machine has its ports on its own address."""
    yield urlsplit(address.endpoint).hostname or "127.0.0.1", port


async def _carry(transport: Transport, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection. Whatever ends it (either side, the desktop, cancellation) closes both halves."""
    try:
        async with transport.session().ws_connect(transport.url(f"/forward/{port}"), max_msg_size=0) as socket:
            upward = asyncio.create_task(_upward(reader, socket))
            try:
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.BINARY:
                        writer.write(message.data)
                        await writer.drain()
            finally:
                upward.cancel()
                await asyncio.gather(upward, return_exceptions=True)
    except (aiohttp.ClientError, OSError):
        pass  # the caller sees a closed connection, as it would with a real port
    finally:
        writer.close()


async def _upward(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
    while chunk := await reader.read(_CHUNK):
        await socket.send_bytes(chunk)
    await socket.close()
