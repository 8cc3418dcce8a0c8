"""TimedEnv: episodes that wait on their desktop for as long as the model says, and score what it says.

Every reply is made by `reply`; after `turns` of them an episode is over. With a scripted model whose replies follow
from the seed (`by_seed`), lengths and scores are whatever a test or a benchmark wants, and the same every time.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from typing import Any, ClassVar

from deskroll.actions import Action, Answer, Wait
from deskroll.config import Settings
from deskroll.desktops.base import DesktopSpec, Observe
from deskroll.envs.base import Ending, Env, EnvContext, TurnResult
from deskroll.types import Observation, Score, StopReason, Task, Tool

ENV = f"{__file__}:TimedEnv"
_LOOK = Observe(screenshot=False, tree=False)


def reply(seconds: float, score: float) -> str:
    """What the model says for the desktop to wait so long."""
    return f"wait {seconds:.4f}, score {score:.4f}"


def lognormal(median_s: float, sigma: float, count: int) -> list[float]:
    """As many quantiles of the distribution, in no order: each as likely as any other."""
    normal = statistics.NormalDist(0.0, sigma)
    found = [median_s * math.exp(normal.inv_cdf((n + 0.5) / count)) for n in range(count)]
    random.Random(1).shuffle(found)
    return found


class TimedSettings(Settings):
    """Options of it."""

    turns: int = 1
    """Replies until an episode is over."""


class TimedEnv(Env):
    """Waits on its desktop."""

    Settings: ClassVar[type[Settings]] = TimedSettings

    def __init__(self, task: Task, settings: Any, context: EnvContext) -> None:
        super().__init__(task, settings, context)
        self._left: int = settings.turns
        self._score = 0.0

    @staticmethod
    def desktop_spec(task: Task, settings: Any) -> DesktopSpec | None:
        return DesktopSpec()

    @classmethod
    def offered(cls, settings: Any) -> Sequence[Tool]:
        return ()

    async def reset(self) -> Observation:
        return Observation(instruction=self.task.instruction)

    async def step(self, actions: Sequence[Action]) -> TurnResult:
        (said,) = actions
        assert isinstance(said, Answer)
        assert self.context.desktop is not None
        seconds, self._score = (float(part.split()[1]) for part in said.text.split(","))
        done = await self.context.desktop.step((Wait(seconds=seconds),), settle=None, observe=_LOOK)
        assert all(each.ok for each in done.results), done
        self._left -= 1
        stop = None if self._left else StopReason.ANSWER
        return TurnResult(observation=Observation(results=("done",)), stop=stop, answer=said.text if stop else None)

    async def score(self, ending: Ending) -> Score:
        return Score(value=self._score, reason="as the model said")
