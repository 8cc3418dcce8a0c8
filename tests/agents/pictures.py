"""An environment that shows a picture after each step; named by its path in tests."""

from __future__ import annotations

from collections.abc import Sequence

from deskroll.actions import Action, Answer
from deskroll.envs import Ending, EnvContext, TurnResult
from deskroll.envs.tooled import ToolEnv, ToolSettings
from deskroll.types import Observation, Score, StopReason, Task, Tool, ToolRequest
from tests.agents.talk import TOOLS, decode, png


class PictureEnv(ToolEnv):
    """Every third picture is one that was shown before; the texts are as odd as texts can be."""

    def __init__(self, task: Task, settings: ToolSettings, means: EnvContext | None = None) -> None:
        super().__init__(task, settings)
        self._steps = 0

    @property
    def tools(self) -> Sequence[Tool]:
        return TOOLS

    def decode(self, call: ToolRequest) -> Sequence[Action]:
        return decode(call)

    async def reset(self) -> Observation:
        return Observation(instruction=self.task.instruction, screenshot=png(0))

    async def step(self, actions: Sequence[Action]) -> TurnResult:
        self._steps += 1
        if isinstance(actions[-1], Answer):
            return TurnResult(observation=Observation(), stop=StopReason.ANSWER, answer=actions[-1].text)
        words = tuple(f'step {self._steps} "ü\\\n\u2028🙂 {n}' for n in range(len(actions)))
        return TurnResult(observation=Observation(results=words, screenshot=png(self._steps % 3), terminal="$ \x1b[0m"))

    async def score(self, ending: Ending) -> Score:
        return Score(value=1.0, reason="it came to its end")
