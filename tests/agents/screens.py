"""What tests of agents on a screen share: pictures of a size, and agents with all that they are given."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from deskroll.actions import Action
from deskroll.agents import Agent, AgentContext, agent_kind, agent_settings
from deskroll.config import Settings
from deskroll.envs.osworld.action_space import action_space
from deskroll.errors import ActionError
from deskroll.models.base import Model
from deskroll.models.scripted import Script, ScriptedServer, Turn
from deskroll.registry import TABLE
from deskroll.types import Observation, Task, ToolRequest
from tests.agents.talk import Notes
from tests.models.servers import client

SPACES = {entry.name: action_space(entry.name)(Settings()) for entry in TABLE["action_space"]}

SCREEN = (1920, 1080)
TASK = Task(id="task-1", instruction="Do it.")


def picture(size: tuple[int, int] = SCREEN, shade: int = 0) -> bytes:
    """A PNG of one shade."""
    width, height = size

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\x00" + bytes([shade]) * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


PICTURE = picture()
BEGIN = Observation(instruction="Do it.", screenshot=PICTURE)
LATER = Observation(results=("",), screenshot=PICTURE)


def no_tools(call: ToolRequest) -> Sequence[Action]:
    raise ActionError("there are no tools")


def agent(
    name: str,
    model: Model,
    notes: Notes | None = None,
    *,
    task: Task = TASK,
    sample: int = 0,
    space: str = "pyautogui",
    shown: tuple[int, int] | None = None,
    model_name: str = "",
    **options: Any,
) -> Agent:
    """An agent by its name, on a screen, in an action space."""
    kind = agent_kind(name)
    context = AgentContext(
        model=model,
        tools=(SPACES[space].tool,),
        decode=lambda call: SPACES[space].decode(call, *SCREEN),
        log=notes or Notes(),
        task=task,
        sample=sample,
        screen=SCREEN,
        shown=shown,
        model_name=model_name,
    )
    return kind(context, agent_settings(kind, options, name))


@dataclass
class Told:
    """An agent, and what its model was asked."""

    agent: Agent
    server: ScriptedServer
    notes: Notes

    def sent(self, number: int = -1) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = json.loads(self.server.requests[number])["messages"]
        return messages


@asynccontextmanager
async def told(name: str, *turns: Turn | str, **options: Any) -> AsyncIterator[Told]:
    """An agent whose model says this; no request may have been refused in the end."""
    async with (
        ScriptedServer(Script.replying(*turns), keep_requests=True) as server,
        client(server.url, retries=0) as model,
    ):
        notes = Notes()
        yield Told(agent(name, model, notes, **options), server, notes)
        assert server.stats.refused == 0


class NoModel:
    """Must not be asked."""

    async def complete(self, messages: Sequence[bytes], tools: bytes | None = None) -> Any:
        raise AssertionError("an agent that needs no model asked one")
