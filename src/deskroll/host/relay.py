"""Byte streams carried from one socket to another, and the listeners that such streams come from."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_CHUNK = 256 * 1024


@asynccontextmanager
async def serve_connections(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    path: str = "",
) -> AsyncIterator[asyncio.Server]:
    """Serve each connection to a port, or to a path, until it returns; leaving the block closes all of them."""
    connections: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            connections.add(task)
            task.add_done_callback(connections.discard)
        try:
            with contextlib.suppress(asyncio.CancelledError, OSError):  # by leaving the block, or by either side
                await serve(reader, writer)
        finally:
            writer.close()

    server = await (asyncio.start_unix_server(accept, path) if path else asyncio.start_server(accept, host, port))
    try:
        yield server
    finally:
        server.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def carry(one: Streams, other: Streams) -> None:
    """Carry bytes both ways until both sides have said that they are done, or one hangs up; then close the other."""
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_copy(one[0], other[1]))
            tasks.create_task(_copy(other[0], one[1]))
    except* OSError:
        pass  # either side may hang up at any time
    finally:
        other[1].close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()
    with contextlib.suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()
