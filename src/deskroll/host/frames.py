"""Frames: small messages over a stream socket, each behind its length; heard by a callback, without a task.

For conversations of many short messages: a callback for all that has arrived costs a fraction of two awaits a message.
Guarantees: a message is heard once and whole, in order; one that is larger than `LARGEST` ends the connection; `gone`
is called once, when nothing more can come.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from deskroll.host.listen import Listen

LARGEST = 1024**2
_HEAD = 4
_NOTICED = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)
"""A host that is gone without a word is noticed after 30 s."""


class Frames(asyncio.Protocol):
    """One end of a connection."""

    def __init__(self, hear: Callable[[bytes], None], gone: Callable[[], None]) -> None:
        self._hear = hear
        self._gone = gone
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def send(self, message: bytes) -> None:
        """Send one; where the other end is gone, `gone` tells."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(len(message).to_bytes(_HEAD, "big") + message)

    def close(self) -> None:
        """Say no more, once what was sent is on its way."""
        if self._transport is not None:
            self._transport.close()

    @property
    def socket(self) -> socket.socket | None:
        """What it goes over."""
        return None if self._transport is None else self._transport.get_extra_info("socket")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast(asyncio.Transport, transport)  # a stream's can be written to
        if (sock := self.socket) is not None and sock.family != socket.AF_UNIX:
            for level, option, value in _NOTICED:
                sock.setsockopt(level, option, value)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= _HEAD:
            size = int.from_bytes(buffer[at : at + _HEAD], "big")
            if size > LARGEST:
                buffer.clear()
                if self._transport is not None:
                    self._transport.abort()
                return
            if len(buffer) - at - _HEAD < size:
                break
            self._hear(bytes(buffer[at + _HEAD : at + _HEAD + size]))
            at += _HEAD + size
        del buffer[:at]

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._transport = None
        self._gone()


async def connect(listen: Listen, hear: Callable[[bytes], None], gone: Callable[[], None]) -> Frames:
    """A connection to whoever listens there; OSError where nobody does."""
    loop = asyncio.get_running_loop()
    if listen.is_unix:
        _, frames = await loop.create_unix_connection(lambda: Frames(hear, gone), listen.path)
    else:
        _, frames = await loop.create_connection(lambda: Frames(hear, gone), listen.host, listen.port)
    return frames
