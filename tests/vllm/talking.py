"""TalkingAgent: says something, looks at what there is to see, and says something again, whatever its model answers."""

from __future__ import annotations

from deskroll.actions import Action, Done, Wait
from deskroll.agents.base import AgentContext
from deskroll.agents.chat import ChatAgent, ChatSettings
from deskroll.models.messages import Message
from deskroll.types import Completion, Observation

TURNS = 5


class TalkingAgent(ChatAgent):
    """Five turns without any tool."""

    def __init__(self, context: AgentContext, settings: ChatSettings) -> None:
        super().__init__(context, settings)
        self._tools = None
        self._turns = 0

    def _read(self, completion: Completion) -> tuple[list[Action], dict[int, str]]:
        self._turns += 1
        return [Done() if self._turns == TURNS else Wait(seconds=0.0)], {}

    def _report(self, observation: Observation) -> None:
        self._conversation.add(Message.user("and now?", self._images(observation)))
