"""The body of a request, put together from parts that were encoded before.

Nothing is decoded or encoded again here. A short body goes out in one write; of a long one, large parts (screens) are
handed to the connection as they are, and small ones are joined until they are worth a write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aiohttp import payload
from aiohttp.abc import AbstractStreamWriter

_WORTH_A_WRITE = 64 * 1024


class Body(payload.Payload):
    """A body in parts, of known length; it can be sent any number of times."""

    _default_content_type = "application/json"
    _autoclose = True  # nothing to close: it is all in memory

    def __init__(self, parts: list[bytes]) -> None:
        super().__init__(parts)
        self._size = sum(map(len, parts))

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """All of it as text."""
        return b"".join(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send all of it."""
        if self._size is not None and self._size <= _WORTH_A_WRITE:
            await writer.write(b"".join(self._value))
            return
        for piece in _pieces(self._value):
            await writer.write(piece)


def _pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    small: list[bytes] = []
    size = 0
    for part in parts:
        if len(part) >= _WORTH_A_WRITE:
            if small:
                yield b"".join(small)
                small, size = [], 0
            yield part
            continue
        small.append(part)
        size += len(part)
        if size >= _WORTH_A_WRITE:
            yield b"".join(small)
            small, size = [], 0
    if small:
        yield b"".join(small)
