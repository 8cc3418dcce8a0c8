"""Serves a desktop's guest on a TCP address, by carrying bytes to the unix socket that it listens on."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from deskroll.desktops.base import Address

_CHUNK = 256 * 1024
_GONE = (
    b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
)


class Relay:
    """One listener for one desktop. Use with `async with`; leaving closes every connection."""

    def __init__(self, address: Address, host: str, port: int) -> None:
        self._socket = address.endpoint.removeprefix("unix:")
        message = f"desktop {address.id} is gone; start another one"
        self._gone = msgspec.json.encode({"status": "error", "message": message, "error": message, "lost": True})
        self._host, self._port = host, port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._accept, self._host, self._port)
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        if self._server is None:
            return self._port
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        try:
            await self._carry(reader, writer)
        except OSError:
            writer.write(_GONE % (len(self._gone), self._gone))
        except asyncio.CancelledError:
            pass  # the relay is closing
        finally:
            writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(self._socket)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_copy(reader, inner_writer))
                tasks.create_task(_copy(inner_reader, writer))
        except* OSError:
            pass  # either side may hang up at any time
        finally:
            inner_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()
    with contextlib.suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()
