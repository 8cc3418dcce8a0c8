"""Reaching a TCP port inside a desktop: a listener on loopback, each connection carried to the guest by a WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress

import aiohttp
from aiohttp import web

from deskroll.desktops.guest.transport import Transport
from deskroll.errors import LeaseLost
from deskroll.host.relay import serve_connections

WebSocket = aiohttp.ClientWebSocketResponse | web.WebSocketResponse
_CHUNK = 64 * 1024
_LOOK_S = 1.0


@asynccontextmanager
async def forward_through_guest(transport: Transport, port: int) -> AsyncIterator[tuple[str, int]]:
    """Listen on a free loopback port for as long as the block and the hold on the desktop last.

    Leaving the block closes every connection; so does the end of the hold.
    """
    transport.require_held()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Whatever ends it (either side, the desktop), the caller sees a closed connection, as with a real port.
        with suppress(aiohttp.ClientError, LeaseLost):
            transport.require_held()
            async with transport.session().ws_connect(transport.url(f"/forward/{port}"), max_msg_size=0) as socket:
                await _while_held(transport, carry(socket, reader, writer))

    async with serve_connections(serve) as server:
        host, local_port = server.sockets[0].getsockname()[:2]
        yield host, local_port


async def _while_held(transport: Transport, work: Coroutine[None, None, None]) -> None:
    """Go on until it is done or the desktop is ours no more; that may change at any time, so it is asked often."""
    carrying = asyncio.ensure_future(work)
    try:
        while not carrying.done():
            await asyncio.wait([carrying], timeout=min(_LOOK_S, transport.require_held()))
    finally:
        carrying.cancel()
        await asyncio.gather(carrying, return_exceptions=True)


async def carry(socket: WebSocket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes both ways until both sides have said that they are done: an empty message is an end of file."""
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_outward(reader, socket))
            tasks.create_task(_inward(socket, writer))
    except* (OSError, aiohttp.ClientError):
        pass  # either side may hang up at any time: that is how connections end
    await socket.close()


async def _outward(reader: asyncio.StreamReader, socket: WebSocket) -> None:
    while chunk := await reader.read(_CHUNK):
        await socket.send_bytes(chunk)
    await socket.send_bytes(b"")


async def _inward(socket: WebSocket, writer: asyncio.StreamWriter) -> None:
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY:
            continue
        if not message.data:
            writer.write_eof()
            return
        writer.write(message.data)
        await writer.drain()
    raise ConnectionResetError("the other side is gone")
