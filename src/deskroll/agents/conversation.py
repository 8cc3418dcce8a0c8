"""Conversation: the messages of one attempt, and which of their screens and trees the next request still holds.

Guarantees: every message is kept by the log when it is added, and `Sent` says of each request which messages it held
and which screens and trees were left out, so that each request can be built again from what was kept, to the byte.
"""

from __future__ import annotations

from collections.abc import Sequence

from deskroll.models.messages import Message
from deskroll.types import ConversationLog, Sent


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
