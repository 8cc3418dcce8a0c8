"""Bytes carried from socket to socket: all of them, both ways, each side done when it says so."""

from __future__ import annotations

import asyncio
from pathlib import Path

from deskroll.host.relay import carry, serve_connections

MUCH = b"x" * 3_000_000


async def answer_at_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read all that there is, and only then say how much."""
    writer.write(b"%d" % len(await reader.read()))


async def test_bytes_go_both_ways_and_an_end_of_file_too(tmp_path: Path) -> None:
    path = str(tmp_path / "inner")

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await carry((reader, writer), await asyncio.open_unix_connection(path))

    async with serve_connections(answer_at_the_end, path=path), serve_connections(pass_on) as outer:
        reader, writer = await asyncio.open_connection(*outer.sockets[0].getsockname())
        writer.write(MUCH)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 60) == b"%d" % len(MUCH)
        writer.close()


async def test_what_cannot_be_reached_is_a_closed_connection(tmp_path: Path) -> None:
    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await carry((reader, writer), await asyncio.open_unix_connection(str(tmp_path / "nowhere")))

    async with serve_connections(pass_on) as outer:
        reader, writer = await asyncio.open_connection(*outer.sockets[0].getsockname())
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()


async def test_leaving_the_block_closes_every_connection() -> None:
    served = asyncio.Event()

    async def stay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.set()
        await asyncio.Event().wait()

    async with serve_connections(stay) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await asyncio.wait_for(served.wait(), 60)
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()
