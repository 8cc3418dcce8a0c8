"""Reaching a TCP port inside a desktop: a listener on loopback, each connection carried to the guest by a WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress

import aiohttp
from aiohttp import web

from deskroll.desktops.guest.transport import Transport
from deskroll.errors import LeaseLost

_CHUNK = 64 * 1024
_LOOK_S = 1.0


@asynccontextmanager
async def forward_through_guest(transport: Transport, port: int) -> AsyncIterator[tuple[str, int]]:
    """Listen on a free loopback port for as long as the block and the hold on the desktop last.

    Leaving the block closes every connection; so does the end of the hold.
    """
    transport.require_held()
    connections: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            connections.add(task)
            task.add_done_callback(connections.discard)
        # Cancelled when the block is left, which is nobody's failure.
        with suppress(asyncio.CancelledError):
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


async def _carry(transport: Transport, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection. Whatever ends it (either side, the desktop, cancellation) closes both halves."""
    try:
        transport.require_held()
        async with transport.session().ws_connect(transport.url(f"/forward/{port}"), max_msg_size=0) as socket:
            await _while_held(transport, carry(socket, reader, writer))
    except (aiohttp.ClientError, OSError, LeaseLost):
        pass  # the caller sees a closed connection, as it would with a real port
    finally:
        writer.close()


async def _while_held(transport: Transport, work: Coroutine[None, None, None]) -> None:
    """Go on until it is done or the desktop is ours no more; that may change at any time, so it is asked often."""
    carrying = asyncio.ensure_future(work)
    try:
        while not carrying.done():
            await asyncio.wait([carrying], timeout=min(_LOOK_S, transport.require_held()))
    finally:
        carrying.cancel()
        await asyncio.gather(carrying, return_exceptions=True)


async def carry(
    socket: aiohttp.ClientWebSocketResponse | web.WebSocketResponse,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Carry bytes both ways until both sides have said that they are done: an empty message is an end of file."""
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_outward(reader, socket))
            tasks.create_task(_inward(socket, writer))
    except* (OSError, aiohttp.ClientError):
        pass  # either side may hang up at any time: that is how connections end
    await socket.close()


async def _outward(
    reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse | web.WebSocketResponse
) -> None:
    while chunk := await reader.read(_CHUNK):
        await socket.send_bytes(chunk)
    await socket.send_bytes(b"")


async def _inward(
    socket: aiohttp.ClientWebSocketResponse | web.WebSocketResponse, writer: asyncio.StreamWriter
) -> None:
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY:
            continue
        if not message.data:
            writer.write_eof()
            return
        writer.write(message.data)
        await writer.drain()
    raise ConnectionResetError("the other side is gone")
