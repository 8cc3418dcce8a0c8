"""ReplayAgent: does what a stored attempt did, turn by turn, and asks no model.

Guarantees: turns are numbered as they were, those in which nothing was done included, so that the steps and screens of
both attempts can be laid beside each other.
"""

from __future__ import annotations

from typing import ClassVar

from deskroll.agents.base import NO_MODEL, Agent, AgentContext
from deskroll.config import Settings
from deskroll.errors import AgentError
from deskroll.store import AttemptReader, Storage
from deskroll.types import Decision, Observation


class ReplaySettings(Settings):
    """Which attempt is played."""

    run: str = ""
    """The folder of its run."""
    attempt: str = ""
    """Its own folder, relative to the run's."""


class ReplayAgent(Agent):
    """Repeats."""

    Settings: ClassVar[type[ReplaySettings]] = ReplaySettings
    protocol: ClassVar[str] = NO_MODEL

    def __init__(self, context: AgentContext, settings: ReplaySettings) -> None:
        super().__init__(context, settings)
        if not settings.attempt:
            raise AgentError("the replay needs an attempt: set agent_options.run and agent_options.attempt")
        self._steps = AttemptReader(Storage.at(settings.run), settings.attempt).steps()
        self._next = 0

    async def act(self, observation: Observation) -> Decision:
        """The next turn, as it was."""
        if self._next == 0 and observation.screenshot:
            self.context.log.screen(observation.screenshot)  # the beginning: no step holds it
        if self._next == len(self._steps):
            return Decision(gave_up="the attempt that is played had no further turns, and did not end")
        step = self._steps[self._next]
        self._next += 1
        return Decision(actions=step.actions, thought=step.thought, problem="" if step.actions else "nothing was done")
