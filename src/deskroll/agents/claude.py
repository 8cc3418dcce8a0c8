"""ClaudeAgent: Anthropic's models with their own computer tool, over the Messages API.

The newest tool is a toolset, in which every action is a tool of its own; the older ones are one tool, `computer`, and
need a beta header, which the client adds by the tool's name. Screens go back in the tools' results. A reply without a
call ends the episode; one with [INFEASIBLE] in it says that the task cannot be done.

Coordinates are pixels of the screens that the model is shown; where those are smaller than the desktop, they are mapped
back. What the model thought is kept with the attempt and not sent again: screens that grow old are withheld, and the
API refuses thoughts in a history that was changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import msgspec
from pydantic import Field

from deskroll.actions import Action, Answer, Done, Fail, Wait
from deskroll.actions.claude import decode
from deskroll.actions.pixels import Size
from deskroll.agents.base import AgentContext
from deskroll.agents.chat import ChatAgent, ChatSettings
from deskroll.errors import ActionError
from deskroll.models.anthropic import TOOLSET
from deskroll.models.messages import Message
from deskroll.types import Observation, ToolRequest

INFEASIBLE = "[INFEASIBLE]"
SYSTEM_PROMPT = f"""\
You use a Linux desktop by its mouse and keyboard to do the task that you are given.
Nobody can answer questions: decide by yourself, and go on until the task is done.
After each step look at the screen, and go on only when the step has come out as it should.
When the task is done, reply without calling a tool; where it asks for an answer, reply with that answer alone.
When the task cannot be done at all on this desktop, reply with {INFEASIBLE} and the reason, and call no tool."""
_UNANSWERED = ("zoom", "cursor_position")
"""Tools that older versions always have, and that only look in a way that is not offered here."""


class ClaudeSettings(ChatSettings):
    """Options of the Claude agent."""

    system_prompt: str = SYSTEM_PROMPT
    """What the model is told first."""
    max_images: int = Field(default=10, ge=1, le=1000)
    """The most screens in a request: the last ones."""
    tool: Literal["computer_toolset_20260801", "computer_20251124", "computer_20250124", "computer_20241022"] = (
        "computer_toolset_20260801"
    )
    """Which computer tool the model knows: the toolset, or a version of the older tool (see docs/agents.md)."""


class ClaudeAgent(ChatAgent):
    """One attempt of a Claude model."""

    Settings: ClassVar[type[ChatSettings]] = ClaudeSettings
    protocol: ClassVar[str] = "anthropic"

    def __init__(self, context: AgentContext, settings: ClaudeSettings) -> None:
        super().__init__(context, settings)
        self._tool = settings.tool
        self._screen: Size = context.require_screen("claude")
        self._picture = context.picture(self._screen, None)
        """The screen as the model sees it."""
        self._tools = None

    def _say(self, text: str, observation: Observation) -> None:
        self._looked(observation)
        if self._tools is None:
            self._tools = msgspec.json.encode([_described(self._tool, self._picture.shown)])
        super()._say(text, observation)

    def _report(self, observation: Observation) -> None:
        """Answer every open call; what is seen now goes with the last one's result."""
        self._looked(observation)
        answered = self._results(observation)
        if not answered:
            super()._say("", observation)
            return
        *before, (last, text) = answered
        for call, result in before:
            self._conversation.add(Message.tool(call.id, result))
        text = "\n\n".join(filter(None, (text, self._terminal(observation))))
        images, bulk = self._images(observation), self._tree(observation)
        self._conversation.add(Message("tool", text, bulk=bulk, images=images, tool_call_id=last.id))

    def _looked(self, observation: Observation) -> None:
        if observation.screenshot:
            self._picture = self.context.picture(self._screen, observation.screenshot)

    def _final(self, text: str) -> tuple[list[Action], dict[int, str]]:
        if INFEASIBLE in text:
            return [Fail()], {}
        return [Answer(text) if text else Done()], {}

    def _decode(self, call: ToolRequest) -> Sequence[Action]:
        given = _input(call)
        if call.name != "computer":
            given = {"action": call.name, **given}
        name = given.get("action")
        if name in _UNANSWERED:
            raise ActionError(f"{name} is not offered here; take a screenshot instead")
        actions = [self._picture.back(action) for action in decode(given, *self._picture.shown)]
        return actions or (Wait(0.0),)  # who only looks is shown the screen


def _described(tool: str, image: Size) -> dict[str, Any]:
    if tool == TOOLSET:
        return {"type": tool, "configs": {name: {"enabled": False} for name in _UNANSWERED}}
    width, height = image
    return {"type": tool, "name": "computer", "display_width_px": width, "display_height_px": height}


def _input(call: ToolRequest) -> dict[str, object]:
    try:
        given = msgspec.json.decode(call.arguments or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ActionError(f"the input is not valid JSON: {error}") from None
    if not isinstance(given, dict):
        raise ActionError("the input is not an object")
    return given
