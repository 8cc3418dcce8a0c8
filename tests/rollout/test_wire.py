"""Messages between coordinator and workers: each is heard once and whole, however the bytes arrive."""

from __future__ import annotations

import asyncio
import socket

import pytest

from deskroll.rollout.backends.wire import LARGEST, Channel, Finish, Unwritten
from deskroll.types import EpisodeKey

KEY = EpisodeKey(phase="eval", round=0, task="t", sample=0)


def unwritten(message: str) -> Unwritten:
    return Unwritten(key=KEY, attempt=1, message=message)


async def test_messages_of_any_size_arrive_in_order() -> None:
    here, there = socket.socketpair()
    said, hears = await Channel.over(here), await Channel.over(there)
    sizes = [0, 1, 3_000_000, 10, 2**18, 2**18 - 40, 5]
    messages = [unwritten("x" * size) for size in sizes]

    async def speak() -> None:
        for message in messages:
            said.send(message)
        await said.drain()
        await said.close()

    speaking = asyncio.create_task(speak())
    assert [message async for message in hears.upward()] == messages
    await speaking
    await hears.close()


@pytest.mark.parametrize("piece", [1, 3, 7, 1000])
async def test_what_arrives_in_pieces_is_put_together(piece: int) -> None:
    recorder, record = socket.socketpair()
    source = await Channel.over(recorder)
    for _ in range(3):
        source.send(Finish())
    await source.close()
    stream = record.recv(2**16)
    record.close()

    here, there = socket.socketpair()
    hears = await Channel.over(there)
    loop = asyncio.get_running_loop()
    here.setblocking(False)

    async def speak() -> None:
        for at in range(0, len(stream), piece):
            await loop.sock_sendall(here, stream[at : at + piece])
            await asyncio.sleep(0)
        here.close()

    speaking = asyncio.create_task(speak())
    assert [message async for message in hears.downward()] == [Finish()] * 3
    await speaking
    await hears.close()


@pytest.mark.parametrize("end", [b"", b"\x00\x00", b"\x00\x00\x00\x09half", (LARGEST + 1).to_bytes(4, "big")])
async def test_a_torn_or_impossible_message_is_the_end(end: bytes) -> None:
    here, there = socket.socketpair()
    said, hears = await Channel.over(here.dup()), await Channel.over(there)
    said.send(Finish())
    await said.close()
    here.sendall(end)
    here.close()
    assert [message async for message in hears.downward()] == [Finish()]
    await hears.close()
