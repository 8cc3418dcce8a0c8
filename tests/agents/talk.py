"""Conversations for tests: an agent, a model server that is as strict as the strictest real one, and what was said."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from deskroll.actions import Action, ToolCall
from deskroll.agents import AgentContext
from deskroll.agents.chat import ChatAgent, ChatSettings
from deskroll.errors import ActionError
from deskroll.models.scripted import Script, ScriptedServer, ToolUse, Turn
from deskroll.types import Observation, Tool, ToolRequest
from tests.models.servers import client

TOOLS = (Tool(name="tap", description="Tap.", parameters={"type": "object"}), Tool(name="pair", description="Twice."))
BEGIN = Observation(instruction="Tap it.")
BROKEN = '{"n": '


def png(number: int) -> bytes:
    """An image of its own for each number."""
    return b"\x89PNG\r\n\x1a\n" + bytes([number]) * 50


def tap(*numbers: int, text: str = "") -> Turn:
    return Turn(text=text, tools=tuple(use("tap", n) for n in numbers))


def use(name: str, number: int) -> ToolUse:
    return ToolUse(name=name, arguments=json.dumps({"n": number}))


def decode(call: ToolRequest) -> Sequence[Action]:
    """`tap` is one action, `pair` is two of them; anything else is no call."""
    if call.name not in ("tap", "pair"):
        raise ActionError(f"there is no tool {call.name!r}; tools: tap, pair")
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        raise ActionError("the arguments are no JSON") from None
    return tuple(
        ToolCall(name="tap", arguments=arguments, call_id=call.id) for _ in range(2 if call.name == "pair" else 1)
    )


@dataclass
class Notes:
    """A log that keeps everything in memory."""

    stored: list[bytes] = field(default_factory=list)
    images: dict[str, bytes] = field(default_factory=dict)

    def message(self, stored: bytes) -> None:
        self.stored.append(stored)

    def screen(self, image: bytes) -> str:
        name = f"screens/{image[-1]}.png"
        self.images[name] = image
        return name


@dataclass
class Talk:
    """One conversation."""

    agent: ChatAgent
    server: ScriptedServer
    notes: Notes

    def sent(self, number: int = -1) -> list[dict[str, Any]]:
        """The messages of a request."""
        messages: list[dict[str, Any]] = json.loads(self.server.requests[number])["messages"]
        return messages


@asynccontextmanager
async def talking(*turns: Turn | str, **settings: Any) -> AsyncIterator[Talk]:
    """An agent whose model says this; no request may have been refused in the end."""
    async with (
        ScriptedServer(Script.replying(*turns), keep_requests=True) as server,
        client(server.url, retries=0) as model,
    ):
        notes = Notes()
        context = AgentContext(model=model, tools=TOOLS, decode=decode, log=notes)
        yield Talk(ChatAgent(context, ChatSettings(**settings)), server, notes)
        assert server.stats.refused == 0
