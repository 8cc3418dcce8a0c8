"""RandomAgent: clicks, types and presses at random, the same on every attempt of a task's sample.

What it scores is what a task gives to whoever touches anything. It never says that a task cannot be done.
"""

from __future__ import annotations

import random
import string
from typing import ClassVar

from pydantic import Field

from deskroll import actions as act
from deskroll.actions import Action
from deskroll.agents.base import NO_MODEL, Agent, AgentContext
from deskroll.config import Settings
from deskroll.types import Decision, Observation

_KEYS = ("enter", "tab", "escape", "space", "backspace", "delete", "up", "down", "left", "right", "home", "end", "f10")
_CHORDS = (("ctrl", "a"), ("ctrl", "c"), ("ctrl", "v"), ("ctrl", "s"), ("ctrl", "z"), ("alt", "f4"), ("alt", "tab"))


class RandomSettings(Settings):
    """Options of the random agent."""

    seed: int = 0
    """Another seed gives other actions."""
    steps: int = Field(default=15, ge=0, le=10_000)
    """How many actions it performs, one a turn, before it says that it is done."""


class RandomAgent(Agent):
    """Acts without looking."""

    Settings: ClassVar[type[RandomSettings]] = RandomSettings
    protocol: ClassVar[str] = NO_MODEL

    def __init__(self, context: AgentContext, settings: RandomSettings) -> None:
        super().__init__(context, settings)
        self._screen = context.require_screen("random")
        task = context.task.id if context.task else ""
        self._dice = random.Random(f"{settings.seed}/{task}/{context.sample}")  # noqa: S311  (it is to be repeated)
        self._left = settings.steps

    async def act(self, observation: Observation) -> Decision:
        """One action, or done."""
        if self._left == 0:
            return Decision(actions=(act.Done(),))
        self._left -= 1
        return Decision(actions=tuple(self._drawn()))

    def _drawn(self) -> list[Action]:
        dice = self._dice
        width, height = self._screen
        x, y = dice.randrange(width), dice.randrange(height)
        match dice.randrange(9):
            case 0:
                return [act.DoubleClick(x, y)]
            case 1:
                return [act.RightClick(x, y)]
            case 2:
                return [act.MoveTo(x, y), act.DragTo(dice.randrange(width), dice.randrange(height))]
            case 3:
                return [act.MoveTo(x, y), act.Scroll(dy=dice.choice((-5, 5)))]
            case 4:
                return [act.Typing("".join(dice.choices(string.ascii_lowercase + string.digits + " ", k=8)))]
            case 5:
                return [act.Press(dice.choice(_KEYS))]
            case 6:
                return [act.Hotkey(dice.choice(_CHORDS))]
            case _:
                return [act.Click("left", x, y)]
