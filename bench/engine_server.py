"""The model that bench/engine.py has asked: an OpenAI-compatible server in a process of its own.

    python bench/engine_server.py    prints its address, and ends when its standard input does

Every conversation is the same: four turns that call the calculator once each, then the answer. How many
messages of the assistant a request holds says which turn it is; nothing else is read. Guarantees: each answer is sent
50 ms after the last byte of its request came in, and was encoded before; a request costs far less here than it costs
whoever makes it (one buffer for each connection, no parsing, no copies).

`GET /stats` tells how many requests there were, and how many bytes their bodies had.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from dataclasses import asdict, dataclass
from typing import cast

import uvloop

TURNS = 5
LATENCY_S = 0.05
EXPRESSION, ANSWER = "6*7", "42"
_ASSISTANT = b'"assistant"'
_IMAGE = b";base64,"
_LENGTH = b"\r\ncontent-length:"
_STATS = b"GET /stats "
_BUFFER = 256 * 1024
_ROOM = 64 * 1024
"""So much is free at least whenever something is received."""


@dataclass
class Stats:
    """What came in so far."""

    calls: int = 0
    body_bytes: int = 0


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    uvloop.run(_serve())


async def _serve() -> None:
    loop, stop, stats = asyncio.get_running_loop(), asyncio.Event(), Stats()
    server = await loop.create_server(lambda: _Connection(stats), "127.0.0.1", 0, backlog=1024)
    loop.add_reader(sys.stdin.fileno(), stop.set)  # nothing is ever written there: it is the end of it
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await stop.wait()
    server.close()


def _answer(turn: int) -> bytes:
    """The whole response to a turn."""
    message: dict[str, object] = {"role": "assistant", "content": ANSWER}
    if turn < TURNS - 1:
        call = {"name": "calculator", "arguments": json.dumps({"expressions": [EXPRESSION]})}
        calls = [{"id": f"call_{turn}", "type": "function", "function": call}]
        message = {"role": "assistant", "content": "Let me compute that.", "tool_calls": calls}
    finish = "stop" if turn == TURNS - 1 else "tool_calls"
    return _response({
        "id": f"chatcmpl-{turn}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "bench",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": {"prompt_tokens": 300 + 60 * turn, "completion_tokens": 24, "total_tokens": 324 + 60 * turn},
        "system_fingerprint": "fp_bench",
    })  # fmt: skip


def _response(content: object) -> bytes:
    body = json.dumps(content, separators=(",", ":")).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


_ANSWERS = [_answer(turn) for turn in range(TURNS)]


class _Connection(asyncio.BufferedProtocol):
    """One connection: one request after another."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray(_BUFFER)
        self._filled = 0
        self._body = 0
        """Where the body begins; 0: the header is not whole yet."""
        self._end = 0
        self._answering: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._answering is not None:
            self._answering.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        wanted = max(self._filled + _ROOM, self._end)
        if wanted > len(self._buffer):
            grown = bytearray(2 * wanted)
            grown[: self._filled] = memoryview(self._buffer)[: self._filled]
            self._buffer = grown
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if not self._body:
            self._read_header()
        if self._body and self._filled >= self._end:
            if self._filled > self._end:
                raise ValueError("a second request came before the first was answered")
            self._respond()
            self._filled = self._body = self._end = 0

    def _read_header(self) -> None:
        blank = self._buffer.find(b"\r\n\r\n", 0, self._filled)
        if blank < 0:
            return
        header = bytes(self._buffer[: blank + 2]).lower()
        at = header.find(_LENGTH)
        length = int(header[at + len(_LENGTH) : header.find(b"\r\n", at + 2)]) if at >= 0 else 0
        self._body, self._end = blank + 4, blank + 4 + length

    def _respond(self) -> None:
        if self._buffer.startswith(_STATS):
            self._transport.write(_response(asdict(self._stats)))
            return
        if self._buffer.startswith(b"GET "):  # a look at its health
            self._transport.write(_response({}))
            return
        self._stats.calls += 1
        self._stats.body_bytes += self._end - self._body
        answer = _ANSWERS[min(self._turn(), TURNS - 1)]
        self._answering = self._loop.call_later(LATENCY_S, self._transport.write, answer)

    def _turn(self) -> int:
        """How often the assistant has spoken; images are skipped by the quickest search that there is."""
        buffer, at, end, count = self._buffer, self._body, self._end, 0
        while (image := buffer.find(_IMAGE, at, end)) >= 0:
            count += buffer.count(_ASSISTANT, at, image)
            at = buffer.find(b'"', image, end)
        return count + buffer.count(_ASSISTANT, at, end)


if __name__ == "__main__":
    main()
