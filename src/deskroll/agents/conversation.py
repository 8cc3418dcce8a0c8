"""Conversation: the messages of one attempt, and which of their screens and trees the next request still holds.

`ConversationAgent` is the base of agents that have one: what all of them show of a desktop, and when they give up.

Guarantees: every message is kept by the log when it is added, and `Sent` says of each request which messages it held
and which screens and trees were left out, so that each request can be built again from what was kept, to the byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from deskroll.agents.base import Agent, AgentContext
from deskroll.errors import plain
from deskroll.models.messages import Image, Message
from deskroll.types import ConversationLog, Decision, Observation, Sent

_CHARACTERS_A_TOKEN = 4


class Conversation:
    """Messages so far; of those with a screen or a tree, only the last `most` are sent with it."""

    def __init__(self, log: ConversationLog, *, most: int) -> None:
        self._conversation_log = log
        self._most = most
        self._messages: list[Message] = []
        self._pictured: list[int] = []
        """Messages whose screens and trees are still sent."""
        self._withheld: list[int] = []

    def add(self, message: Message) -> None:
        """Take a message in, and let go of the images that are too old by now."""
        if message.heavy:
            self._pictured.append(len(self._messages))
        self._messages.append(message)
        self._conversation_log.message(message.stored)
        while len(self._pictured) > self._most:
            oldest = self._pictured.pop(0)
            self._withheld.append(oldest)
            self._messages[oldest].let_go()  # a long episode would hold every screen that it ever saw

    def request(self) -> tuple[Sequence[bytes], Sent]:
        """What to send now, and the note of it."""
        withheld = set(self._withheld)
        messages = [each.lean if n in withheld else each.sent for n, each in enumerate(self._messages)]
        return messages, Sent(messages=len(messages), withheld=tuple(self._withheld))


def rebuild(messages: Sequence[Message], sent: Sent) -> list[bytes]:
    """The messages of a request as they were sent, from those that were kept."""
    withheld = set(sent.withheld)
    return [each.lean if n in withheld else each.sent for n, each in enumerate(messages[: sent.messages])]


class ConversationAgent(Agent):
    """One attempt's conversation with a model. Its settings say `max_images`, `max_retries` and `max_tree_tokens`."""

    def __init__(self, context: AgentContext, settings: Any) -> None:
        super().__init__(context, settings)
        self._conversation = Conversation(context.log, most=settings.max_images)
        self._useless = 0
        """Replies in a row that could not be used."""
        self._begun = False

    def _refused(self, decision: Decision, problem: str) -> Decision:
        """The decision with what is wrong with its reply; too many such in a row, and the agent has given up."""
        self._useless += 1
        if self._useless <= self.settings.max_retries:
            return msgspec.structs.replace(decision, problem=problem)
        why = f"{self._useless} replies in a row could not be used; the last one: {plain(problem)}"
        return msgspec.structs.replace(decision, problem=problem, gave_up=why)

    def _images(self, observation: Observation) -> list[Image]:
        """The screen, which is kept with the attempt."""
        screen = observation.screenshot
        return [(self.context.log.screen(screen), screen)] if screen else []

    def _tree(self, observation: Observation) -> str:
        tree = observation.accessibility_tree
        return f"Accessibility tree:\n{self._cut(tree)}" if tree else ""

    def _terminal(self, observation: Observation) -> str:
        return f"Terminal:\n{self._cut(observation.terminal)}" if observation.terminal else ""

    def _cut(self, text: str, most: int | None = None) -> str:
        most = most or self.settings.max_tree_tokens * _CHARACTERS_A_TOKEN
        if len(text) <= most:
            return text
        return f"{text[:most]}\n[cut: {len(text) - most} of {len(text)} characters are not shown]"
