"""NoopAgent: says at once that it is done. What it scores is what a task gives away for nothing."""

from __future__ import annotations

from typing import ClassVar

from deskroll.actions import Done
from deskroll.agents.base import NO_MODEL, Agent
from deskroll.types import Decision, Observation


class NoopAgent(Agent):
    """Does nothing."""

    protocol: ClassVar[str] = NO_MODEL

    async def act(self, observation: Observation) -> Decision:
        """Done."""
        return Decision(actions=(Done(),), thought="nothing is done on purpose")
