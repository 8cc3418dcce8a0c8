"""Reaching a program's port inside a desktop that has no network."""

import asyncio

import aiohttp
import pytest

from deskroll.desktops.guest.client import GuestDesktop
from tests.waiting import eventually

ECHO = """
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
socketserver.ThreadingTCPServer.request_queue_size = 256  # of 5, the kernel drops those who come all at once
socketserver.ThreadingTCPServer(("127.0.0.1", 7777), Echo).serve_forever()
"""
UPPER = """
import socketserver
class Upper(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.read().upper())
socketserver.TCPServer(("127.0.0.1", 7777), Upper).serve_forever()
"""


async def test_http_through_a_forwarded_port(desktop: GuestDesktop) -> None:
    await desktop.write_file("/home/user/www/page.txt", b"hello from inside")
    await desktop.launch(
        ["python3", "-m", "http.server", "8080", "--bind", "127.0.0.1", "--directory", "/home/user/www"]
    )
    async with desktop.forward(8080) as (host, port), aiohttp.ClientSession() as session:

        async def page() -> bytes | None:
            try:
                async with session.get(f"http://{host}:{port}/page.txt") as answer:
                    return await answer.read()
            except aiohttp.ClientError:
                return None

        assert await eventually(page, "the server inside answers") == b"hello from inside"
        # What websites push through at once: several connections, each on its own.
        assert await asyncio.gather(*(page() for _ in range(8))) == [b"hello from inside"] * 8


async def test_megabytes_both_ways(desktop: GuestDesktop) -> None:
    await desktop.launch(["python3", "-c", ECHO])
    await eventually(lambda: _listening(desktop), "the echo server listens")
    data = bytes(range(256)) * 8192
    async with desktop.forward(7777) as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(data)
        assert await asyncio.wait_for(reader.readexactly(len(data)), 30) == data
        writer.close()


async def _listening(desktop: GuestDesktop) -> bool:
    check = "import socket; socket.create_connection(('127.0.0.1', 7777), 1)"
    return (await desktop.run(["python3", "-c", check])).returncode == 0


async def test_a_port_where_nothing_listens_closes_the_connection(desktop: GuestDesktop) -> None:
    async with desktop.forward(9) as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()


async def test_leaving_the_block_closes_everything(desktop: GuestDesktop) -> None:
    await desktop.launch(["python3", "-c", ECHO])
    await eventually(lambda: _listening(desktop), "the echo server listens")
    async with desktop.forward(7777) as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
    assert await asyncio.wait_for(reader.read(), 30) == b""
    writer.close()
    with pytest.raises(OSError):
        await asyncio.open_connection(host, port)


async def test_one_side_may_finish_first(desktop: GuestDesktop) -> None:
    await desktop.launch(["python3", "-c", UPPER])
    await eventually(lambda: _listening(desktop), "the server listens")
    async with desktop.forward(7777) as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"all of it")
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 30) == b"ALL OF IT"
        writer.close()


async def test_many_open_connections_do_not_hold_up_other_calls(desktop: GuestDesktop) -> None:
    await desktop.launch(["python3", "-c", ECHO])
    await eventually(lambda: _listening(desktop), "the echo server listens")
    async with desktop.forward(7777) as (host, port):
        connections = [await asyncio.open_connection(host, port) for _ in range(120)]
        for _, writer in connections:
            writer.write(b"x")
        for reader, _ in connections:
            assert await asyncio.wait_for(reader.readexactly(1), 30) == b"x"
        await desktop.check()
        for _, writer in connections:
            writer.close()
