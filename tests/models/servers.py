"""Servers that answer with bytes of our choice, right or wrong, and clients to ask them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from deskroll.events import Event, ModelAnswered, ModelRetried, kind_of
from deskroll.models.messages import Message
from deskroll.models.openai import OpenAIModel
from deskroll.models.settings import ModelSettings

QUESTION = [Message.user("hello").sent]
TOOLS = b'[{"type":"function","function":{"name":"calculator"}}]'


@dataclass
class Noted:
    """A sink that keeps what it is told."""

    events: list[Event] = field(default_factory=list)

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def troubles(self) -> list[Event]:
        return [event for event in self.events if not isinstance(event, ModelAnswered)]

    def kinds(self) -> list[str]:
        return [kind_of(event) for event in self.troubles()]

    def pauses(self) -> list[float]:
        return [event.pause_s for event in self.events if isinstance(event, ModelRetried)]


@dataclass
class Canned:
    """A server that answers each request with the next of its answers, and the last one from then on."""

    answers: list[bytes]
    url: str = ""
    heads: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next((line[15:] for line in head.splitlines() if line.lower().startswith("content-length:")), "0")
            self.bodies.append(await reader.readexactly(int(length)))
            self.heads.append(head)
            writer.write(self.answers[min(len(self.heads), len(self.answers)) - 1])
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone
        finally:
            writer.close()


@asynccontextmanager
async def canned(*answers: bytes) -> AsyncIterator[Canned]:
    server = Canned(list(answers))
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listener:
        server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
        yield server


def http(body: object, status: int = 200, *, length: int | None = None, **headers: str) -> bytes:
    """An answer; the length may be a lie."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"Content-Type": "application/json", "Content-Length": str(len(data) if length is None else length)}
    lines = [f"HTTP/1.1 {status} Whatever"]
    lines += [
        f"{name.replace('_', '-')}: {value}" for name, value in {**given, "Connection": "close", **headers}.items()
    ]
    return "\r\n".join([*lines, "", ""]).encode() + data


def said(text: str | None = "fine", **fields: object) -> dict[str, object]:
    """The body of an answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"choices": [choice], "usage": {"prompt_tokens": 100, "completion_tokens": 10}, **fields}


def client(url: str, sink: Noted | None = None, env: dict[str, str] | None = None, **fields: object) -> OpenAIModel:
    settings = {"base_url": url, "backoff": 0.001, "timeout": 30, **fields}
    return OpenAIModel(ModelSettings.model_validate(settings), sink=sink, env=env or {})
