"""What bench/engine.py shows to agents: a screen of 150 KB in each turn, never the same twice, and its environment.

Random bytes behind the first ones of a PNG: nobody looks into an image on its way to the model, and nothing can be
gained by compressing it. Made once for each process.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence

import msgspec

from deskroll.actions import Action
from deskroll.envs import TurnResult
from deskroll.envs.math import MathEnv
from deskroll.types import Observation

SIZE = 150_000
_DISTINCT = 16
_PNG = b"\x89PNG\r\n\x1a\n"


@functools.cache
def _screens() -> list[bytes]:
    return [_PNG + random.Random(number).randbytes(SIZE - len(_PNG)) for number in range(_DISTINCT)]


def screen(episode: int, turn: int) -> bytes:
    """What is seen in a turn; no two turns of an episode are alike."""
    return _screens()[(episode * 5 + turn) % _DISTINCT]


class ScreensEnv(MathEnv):
    """The calculator's questions, with a screen to look at before each turn."""

    _turn = 0

    async def reset(self) -> Observation:
        return self._shown(await super().reset())

    async def step(self, actions: Sequence[Action]) -> TurnResult:
        turn = await super().step(actions)
        if turn.stop is not None:
            return turn
        self._turn += 1
        return msgspec.structs.replace(turn, observation=self._shown(turn.observation))

    def _shown(self, observation: Observation) -> Observation:
        number = int(self.task.id.removeprefix("t"))
        return msgspec.structs.replace(observation, screenshot=screen(number, self._turn))
