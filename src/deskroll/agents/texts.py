"""TextAgent: a model that writes its actions as text, in a notation of its own.

Each turn shows the model what is new and asks it once. A reply that cannot be read is answered with what is wrong, so
that the model can mend it, at most `max_retries` times in a row; after that the attempt has failed by the agent.
Subclasses say how the conversation begins and how a reply is read; nothing else differs between them.

Guarantees: all texts stay in the conversation, of the screens the last `max_images`. After each reply comes one
message of the user; before the first there may be two, where a model was trained on the prompt and the first screen in
messages of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec
from pydantic import Field

from deskroll.actions import Reading
from deskroll.actions.noting import noting
from deskroll.actions.pixels import Size
from deskroll.agents.base import AgentContext
from deskroll.agents.conversation import ConversationAgent
from deskroll.config import Settings
from deskroll.errors import ActionError
from deskroll.models.messages import Message
from deskroll.types import Completion, Decision, Observation

_LONGEST_RESULT = 4000


class TextSettings(Settings):
    """Options that all of them have."""

    max_retries: int = Field(default=3, ge=0, le=100)
    """How often in a row a reply that cannot be read is answered with what is wrong."""
    max_images: int = Field(default=5, ge=1, le=1000)
    """The most screens in a request: the last ones."""
    max_tree_tokens: int = Field(default=4000, ge=100)
    """The most tokens (of four characters) of an accessibility tree, where one is shown."""


class TextAgent(ConversationAgent):
    """One attempt's conversation with a model."""

    name: ClassVar[str] = "text"

    def __init__(self, context: AgentContext, settings: TextSettings) -> None:
        super().__init__(context, settings)
        self.screen: Size = context.require_screen(self.name)
        self.image: Size = context.picture(self.screen, None).shown
        """The size of the screen as it was shown last."""

    def opening(self, instruction: str) -> tuple[Sequence[Message], str]:
        """The messages that come first, and the text that goes with the first screen."""
        raise NotImplementedError

    def read(self, text: str) -> Reading:
        """What a reply says and does; `ActionError` says what is wrong with it, for the model to read."""
        raise NotImplementedError

    def said(self, completion: Completion) -> str:
        """The reply as text."""
        return completion.text

    def kept(self, text: str) -> str:
        """The reply as the model is shown it later."""
        return text

    async def act(self, observation: Observation) -> Decision:
        """Tell the model what is new and ask it."""
        if not self._begun:
            self._begun = True
            self._look(observation)
            messages, text = self.opening(observation.instruction)
            for message in messages:
                self._conversation.add(message)
            self._show(text, observation)
        elif not self._useless:
            self._show(self._troubles(observation), observation)
        sending, sent = self._conversation.request()
        completion = await self.context.model.complete(sending)
        said = self.said(completion)
        self._conversation.add(Message("assistant", self.kept(said)))
        decision = Decision(thought=said, completion=completion, sent=sent)
        try:
            with noting() as notes:
                reading = self._read(said, completion)
        except ActionError as error:
            return self._mend(decision, str(error))
        self._useless = 0
        return msgspec.structs.replace(decision, actions=reading.actions, thought=reading.thought, notes=tuple(notes))

    def _read(self, said: str, completion: Completion) -> Reading:
        try:
            return self.read(said)
        except ActionError:
            if completion.finish_reason == "length":
                raise ActionError("your reply was cut off at the limit of tokens; be shorter") from None
            raise

    def _mend(self, decision: Decision, problem: str) -> Decision:
        decision = self._refused(decision, problem)
        if not decision.gave_up:
            self._conversation.add(Message.user(f"error: {problem}"))
        return decision

    def _show(self, text: str, observation: Observation) -> None:
        self._look(observation)
        images, bulk = self._images(observation), self._tree(observation)
        text = "\n\n".join(filter(None, (text, self._terminal(observation))))
        if not (text or bulk or images):
            text = "Done. Go on."
        self._conversation.add(Message.user(text, images, bulk))

    def _look(self, observation: Observation) -> None:
        if observation.screenshot:
            self.image = self.context.picture(self.screen, observation.screenshot).shown

    def _troubles(self, observation: Observation) -> str:
        """What the model has to know of its last actions: what was refused, or printed something."""
        return self._cut("\n".join(each for each in observation.results if each), _LONGEST_RESULT)
