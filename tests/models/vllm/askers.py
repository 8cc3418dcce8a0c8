"""Those who ask a pool, and whether an answer is of the weights that it names."""

from __future__ import annotations

import asyncio
from pathlib import Path

from deskroll.models.base import ModelCall
from deskroll.models.messages import Message
from deskroll.models.scripted import Weights
from deskroll.models.vllm.pool import ModelServicePool
from deskroll.types import Completion, Sampling
from tests.waiting import eventually

CALL = ModelCall(sampling=Sampling(logprobs=True, token_ids=True))


async def ask(pool: ModelServicePool, words: str = "how is it?") -> Completion:
    return await pool.generate([Message.user(words).sent], call=CALL)


def fits(base: Path, answer: Completion) -> bool:
    weights = Weights.read(base.parent / f"step_{answer.version}")
    return weights.fits(answer.token_ids or (), answer.logprobs or ())


class Askers:
    """So many who ask again and again, until they are told to stop; each stops after an answer."""

    def __init__(self, pool: ModelServicePool, count: int) -> None:
        self.answers: list[Completion] = []
        self._pool = pool
        self._stop = asyncio.Event()
        self._tasks = [asyncio.create_task(self._go_on(number)) for number in range(count)]

    async def _go_on(self, number: int) -> None:
        while not self._stop.is_set():
            self.answers.append(await ask(self._pool, f"asker {number}, answer {len(self.answers)}"))

    async def more(self, count: int) -> None:
        """Wait for so many more answers."""
        wanted = len(self.answers) + count

        async def are_there() -> bool:
            return len(self.answers) >= wanted or any(task.done() for task in self._tasks)

        await eventually(are_there, f"{count} more answers")

    async def stop(self) -> None:
        """Raises what any of them was told."""
        self._stop.set()
        await asyncio.gather(*self._tasks)
