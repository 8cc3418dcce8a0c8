"""The body of a request, put together from parts that were encoded before.

Nothing is decoded or encoded again here. A short body goes out in one write; of a long one, large parts (screens) are
handed to the connection as they are, and small ones are joined until they are worth a write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from aiohttp import payload
from aiohttp.abc import AbstractStreamWriter
from pydantic import JsonValue

from deskroll.models.settings import Endpoint, ModelSettings
from deskroll.types import Record

_WORTH_A_WRITE = 64 * 1024
_OPENAI = ".openai.com"


class Template(Record, frozen=True):
    """What all requests of a client have in common: everything but the messages and the tools."""

    head: bytes

    @classmethod
    def of(cls, settings: ModelSettings, endpoint: Endpoint) -> Template:
        """The fields that these settings ask for, encoded."""
        # OpenAI's newer models know the newer name alone, many other servers the older one alone.
        newer = f".{endpoint.url.host}".endswith(_OPENAI)
        fields: dict[str, JsonValue] = {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "max_completion_tokens" if newer else "max_tokens": settings.max_tokens,
            "seed": settings.seed,
            "logprobs": settings.logprobs or None,
            "return_token_ids": settings.return_token_ids or None,
        }
        given = {name: value for name, value in fields.items() if value is not None}
        body = msgspec.json.encode({"model": settings.name, **given, **settings.extra})
        return cls(head=body[:-1] + b',"messages":[')

    def fill(self, messages: Sequence[bytes], tools: bytes | None) -> list[bytes]:
        """The whole body, in parts."""
        parts = [self.head]
        for message in messages:
            parts += (message, b",")
        if messages:
            parts.pop()
        parts.append(b"]}" if tools is None else b'],"tools":%b}' % tools)
        return parts


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
