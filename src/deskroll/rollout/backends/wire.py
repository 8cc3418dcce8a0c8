"""Messages between the coordinator and its workers: records, each behind its length, over a pair of sockets.

The socket is also the lifeline: a worker whose coordinator is gone reads its end and ends too.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import TypeVar

import msgspec

from deskroll.events import Event
from deskroll.rollout.orders import AttemptName, Order, Vitals, WorkerSetup
from deskroll.rollout.spec import Definition
from deskroll.types import Episode, EpisodeKey, Failure, Record

LARGEST = 256 * 1024**2
_HEAD = 4
_READ = 2**18
T = TypeVar("T")


class Setup(Record, frozen=True, tag="setup"):
    """Begin: what all episodes have in common."""

    setup: WorkerSetup
    path: tuple[str, ...] = ()
    """Where the coordinator finds modules: plug-ins that it can import, its workers can, too."""


class Define(Record, frozen=True, tag="define"):
    """What orders that name its digest have in common."""

    definition: Definition


class Forget(Record, frozen=True, tag="forget"):
    """No order names this digest any more, unless it is defined again."""

    digest: str


class Run(Record, frozen=True, tag="run"):
    """Run an attempt."""

    order: Order


class Stop(Record, frozen=True, tag="stop"):
    """End an attempt now."""

    key: EpisodeKey
    attempt: int
    failure: Failure | None = None
    visit: int | None = None
    """Only if it still is in that stage."""


class GiveBack(Record, frozen=True, tag="give_back"):
    """End those of these attempts that have not begun their set-up; the answer is `Kept`."""

    attempts: tuple[AttemptName, ...]


class Dump(Record, frozen=True, tag="dump"):
    """Write down where an attempt stands."""

    key: EpisodeKey
    attempt: int
    why: str


class Finish(Record, frozen=True, tag="finish"):
    """There is nothing more to do: end."""


class Ready(Record, frozen=True, tag="ready"):
    """A worker has begun."""

    pid: int


class Defined(Record, frozen=True, tag="defined"):
    """A worker has found all that a definition names."""

    digest: str


class Ended(Record, frozen=True, tag="ended"):
    """An attempt is over, and its files are durable."""

    episode: Episode
    events: list[Event] = msgspec.field(default_factory=list)
    """What happened in the worker until then, and was not told yet."""


class GivenBack(Record, frozen=True, tag="given_back"):
    """An attempt was ended before it began: nothing is left of it."""

    key: EpisodeKey
    attempt: int


class Kept(Record, frozen=True, tag="kept"):
    """Of the attempts that were asked back, so many come to their end; all others are given back."""

    attempts: int


class Unwritten(Record, frozen=True, tag="unwritten"):
    """An attempt could not be written down."""

    key: EpisodeKey
    attempt: int
    message: str


class Broken(Record, frozen=True, tag="broken"):
    """A worker cannot work, or cannot run what was defined under a digest: something that it names is not there."""

    message: str
    digest: str = ""


class Beat(Record, frozen=True, tag="beat"):
    """A worker lives, and this is how it does."""

    vitals: Vitals
    busy: float | None = None
    """What its attempts have taken of what they share since the last one (`BusyMeter`); None: that cannot be told."""


class Happened(Record, frozen=True, tag="happened"):
    """What happened in a worker, in order."""

    events: list[Event]


Downward = Setup | Define | Forget | Run | Stop | GiveBack | Dump | Finish
Upward = Ready | Defined | Ended | GivenBack | Kept | Unwritten | Broken | Beat | Happened

_encoder = msgspec.msgpack.Encoder()
_downward: msgspec.msgpack.Decoder[Downward] = msgspec.msgpack.Decoder(Downward)
_upward: msgspec.msgpack.Decoder[Upward] = msgspec.msgpack.Decoder(Upward)


class Channel:
    """One end of the pair."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, sock: socket.socket) -> Channel:
        """The end that this socket is."""
        return cls(*await asyncio.open_connection(sock=sock, limit=2**20))

    def send(self, message: Downward | Upward) -> None:
        """Send one; where the other end is gone, reading tells."""
        data = _encoder.encode(message)
        if not self._writer.is_closing():
            self._writer.write(len(data).to_bytes(_HEAD, "big") + data)

    async def drain(self) -> None:
        """Wait until the other end has taken most of what was sent."""
        try:
            await self._writer.drain()
        except (ConnectionError, OSError):
            pass  # reading tells

    def downward(self) -> AsyncIterator[Downward]:
        """What the coordinator says, until it is gone."""
        return self._messages(_downward)

    def upward(self) -> AsyncIterator[Upward]:
        """What a worker says, until it is gone."""
        return self._messages(_upward)

    async def _messages(self, decoder: msgspec.msgpack.Decoder[T]) -> AsyncIterator[T]:
        """Several arrive together more often than not: one read for all of them."""
        buffer, at = bytearray(), 0
        try:
            while data := await self._reader.read(_READ):
                buffer += data
                while len(buffer) - at >= _HEAD:
                    size = int.from_bytes(buffer[at : at + _HEAD], "big")
                    if size > LARGEST:
                        return
                    end = at + _HEAD + size
                    if len(buffer) < end:
                        break
                    message = decoder.decode(buffer[at + _HEAD : end])
                    at = end
                    yield message
                del buffer[:at]
                at = 0
        except (ConnectionError, OSError):
            return

    async def close(self) -> None:
        """Close this end."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except (ConnectionError, OSError):
            pass
