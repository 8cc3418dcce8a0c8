"""An agent of your own: it asks the model for an answer, asks it to check that answer, and gives the second one.

The built-in agent `chat` runs on the same tasks, so that the two can be compared. A scripted model answers
(own_agent.script.yaml). `pytest --pyargs deskroll.testing --agent own_agent.py:CheckingAgent` runs the contract suite.

    python own_agent.py
"""

from pathlib import Path

import deskroll
from deskroll.actions import Answer
from deskroll.agents import AgentContext
from deskroll.config import Settings
from deskroll.models.messages import Message
from deskroll.types import Decision, Observation, Sent

HERE = Path(__file__).parent
TASKS = [
    {"id": "leap", "question": "How many days did the year 2024 have?", "answer": "366"},
    {"id": "letters", "question": "How often does the letter e stand in 'seventeen'?", "answer": "4"},
]


class CheckingSettings(Settings):
    """What can be set with `agent_options`."""

    check: str = "Check your answer, and reply with the right one alone."
    """What the model is told after its first answer."""


class CheckingAgent(deskroll.Agent):
    """Answers in one turn, with two calls of the model."""

    Settings = CheckingSettings

    def __init__(self, context: AgentContext, settings: CheckingSettings) -> None:
        super().__init__(context, settings)
        self.said: list[Message] = []

    async def act(self, observation: Observation) -> Decision:
        """Ask twice, and decide by the second answer."""
        for question in (observation.instruction, self.settings.check):
            self.tell(Message.user(question))
            sent = Sent(messages=len(self.said))
            completion = await self.context.model.complete([message.sent for message in self.said])
            self.tell(Message.assistant(completion))
        return Decision(actions=(Answer(text=completion.text),), completion=completion, sent=sent)

    def tell(self, message: Message) -> None:
        """Add a message to the conversation, and to the file that keeps it."""
        self.said.append(message)
        self.context.log.message(message.stored)


if __name__ == "__main__":
    for agent in ("chat", f"{__file__}:CheckingAgent"):
        episodes = deskroll.run(TASKS, env="math", agent=agent, model=f"scripted:{HERE}/own_agent.script.yaml")
        print(agent, {episode.key.task: episode.score.value for episode in episodes})
