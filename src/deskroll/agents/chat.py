"""ChatAgent: any model that chats and calls tools.

Each turn asks the model once. Its calls are performed in order, all of them; a reply without a call is the answer.
A reply that cannot be used (a malformed call, nothing at all, a text that was cut off) is answered with what is wrong,
so that the model can mend it, at most `max_retries` times in a row; after that the attempt has failed by the agent.

Guarantees: every call that the model made is answered before it is asked again; none is ever sent without its answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec
from pydantic import Field

from deskroll.actions import Action, Answer
from deskroll.actions.noting import noting
from deskroll.agents.base import AgentContext
from deskroll.agents.conversation import ConversationAgent
from deskroll.config import Settings
from deskroll.errors import ActionError
from deskroll.models.messages import Message
from deskroll.types import Completion, Decision, Observation, ToolRequest

_UNPERFORMED = "not performed: another call in the same message was malformed; send all of them again"
_OVER = "not performed: the episode was over"

SYSTEM_PROMPT = """\
You are given a task and tools. Work step by step: call tools, look at what they return, and go on until it is done.
Call several tools at once only when none of them depends on what another returns.
When you are done, reply with the final answer alone, as short as it can be, and call no tool."""


class ChatSettings(Settings):
    """Options of the chat agent."""

    system_prompt: str = SYSTEM_PROMPT
    """What the model is told first."""
    max_retries: int = Field(default=3, ge=0, le=100)
    """How often in a row a reply that cannot be used is answered with what is wrong."""
    max_images: int = Field(default=3, ge=1, le=1000)
    """The most screens, and the most accessibility trees, in a request: the last ones."""
    max_tree_tokens: int = Field(default=4000, ge=100)
    """The most tokens (of four characters) of an accessibility tree, a terminal or a result."""


class ChatAgent(ConversationAgent):
    """One attempt's conversation with a model."""

    Settings: ClassVar[type[ChatSettings]] = ChatSettings

    def __init__(self, context: AgentContext, settings: ChatSettings) -> None:
        super().__init__(context, settings)
        self._tools = _encoded(context) if context.tools else None
        self._open: list[tuple[ToolRequest, int]] = []
        """Calls that were made of the last reply, each with the number of its actions."""

    async def act(self, observation: Observation) -> Decision:
        """Tell the model what is new and ask it."""
        if not self._begun:
            self._begun = True
            self._conversation.add(Message.system(self.settings.system_prompt))
            self._say(observation.instruction, observation)
        elif not self._useless:
            self._report(observation)
        messages, sent = self._conversation.request()
        completion = await self.context.model.complete(messages, self._tools)
        decision = Decision(thought=completion.text, completion=completion, sent=sent)
        completion = _answerable(completion)
        self._conversation.add(Message.assistant(completion))
        with noting() as notes:
            actions, wrong = self._read(completion)
        if wrong:
            return self._mend(decision, completion, wrong)
        self._useless = 0
        return msgspec.structs.replace(decision, actions=tuple(actions), notes=tuple(notes))

    def _read(self, completion: Completion) -> tuple[list[Action], dict[int, str]]:
        """The actions of a reply, and what is wrong with it, by the number of the call (-1: with all of it)."""
        self._open = []
        if not completion.tool_calls:
            if completion.finish_reason == "length":
                return [], {-1: "your reply was cut off at the limit of tokens; be shorter"}
            return self._final(completion.text.strip())
        actions: list[Action] = []
        wrong: dict[int, str] = {}
        for n, call in enumerate(completion.tool_calls):
            try:
                decoded = self._decode(call)
            except ActionError as error:
                wrong[n] = str(error)
            else:
                actions.extend(decoded)
                self._open.append((call, len(decoded)))
        return actions, wrong

    def _final(self, text: str) -> tuple[list[Action], dict[int, str]]:
        """What a reply without a call amounts to."""
        if not text:
            return [], {-1: "your reply was empty; call a tool, or give the final answer"}
        return [Answer(text=text)], {}

    def _decode(self, call: ToolRequest) -> Sequence[Action]:
        return self.context.decode(call)

    def _mend(self, decision: Decision, completion: Completion, wrong: dict[int, str]) -> Decision:
        """Tell the model what was wrong with its reply; every call of it gets an answer."""
        decision = self._refused(decision, "; ".join(wrong.values()))
        if decision.gave_up:
            return decision
        for n, call in enumerate(completion.tool_calls):
            self._conversation.add(Message.tool(call.id, f"error: {wrong[n]}" if n in wrong else _UNPERFORMED))
        if -1 in wrong:
            self._conversation.add(Message.user(f"error: {wrong[-1]}"))
        return decision

    def _report(self, observation: Observation) -> None:
        """Answer every open call with what came of it; what is seen now follows in a message of its own."""
        for call, text in self._results(observation):
            self._conversation.add(Message.tool(call.id, text))
        if observation.screenshot or observation.accessibility_tree or observation.terminal:
            self._say("", observation)

    def _results(self, observation: Observation) -> list[tuple[ToolRequest, str]]:
        """Every open call, each with what came of it; none is open afterwards."""
        answered, results = [], list(observation.results)
        for call, count in self._open:
            mine, results = results[:count], results[count:]
            text = "\n".join(each for each in mine if each) if mine else _OVER
            answered.append((call, self._cut(text) or "done"))
        self._open = []
        return answered

    def _say(self, text: str, observation: Observation) -> None:
        images = self._images(observation)
        parts = (text, self._terminal(observation), "The screen now:" if images else "")
        self._conversation.add(Message.user("\n\n".join(filter(None, parts)), images, self._tree(observation)))


def _answerable(completion: Completion) -> Completion:
    """The reply with a name and an id of its own for each call: servers refuse a conversation that lacks them."""
    ids = {call.id for call in completion.tool_calls}
    if len(ids) == len(completion.tool_calls) and all(call.name for call in completion.tool_calls):
        return completion
    calls: dict[str, ToolRequest] = {}
    for call in completion.tool_calls:
        own = call.id
        while own in calls:
            own = f"{own}_"
        calls[own] = msgspec.structs.replace(call, id=own, name=call.name or "unnamed")
    return msgspec.structs.replace(completion, tool_calls=tuple(calls.values()))


def _encoded(context: AgentContext) -> bytes:
    return msgspec.json.encode(
        [
            {
                "type": "function",
                "function": {"name": each.name, "description": each.description, "parameters": each.parameters},
            }
            for each in context.tools
        ]
    )
