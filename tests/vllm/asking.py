"""Askers: many who ask a pool again and again, while something is done to it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from deskroll.models.vllm.pool import ModelServicePool
from tests.vllm.real import START_S, Said, ask
from tests.waiting import eventually


class Askers:
    """So many, of whom every other one shows the picture; each stops after an answer."""

    def __init__(self, pool: ModelServicePool, count: int, picture: Path | None = None, tokens: int = 12) -> None:
        self.said: list[Said] = []
        self._pool = pool
        self._tokens = tokens
        self._stop = asyncio.Event()
        self._tasks = [asyncio.create_task(self._go_on(n, picture if n % 2 else None)) for n in range(count)]

    async def _go_on(self, number: int, picture: Path | None) -> None:
        while not self._stop.is_set():
            words = f"the same beginning of all, asker {number}, answer {len(self.said)}"
            self.said.append(await ask(self._pool, words, picture=picture, tokens=self._tokens))

    async def more(self, count: int) -> None:
        """Wait for so many more answers."""
        wanted = len(self.said) + count

        async def are_there() -> bool:
            return len(self.said) >= wanted or any(task.done() for task in self._tasks)

        await eventually(are_there, f"{count} more answers", START_S)

    async def stop(self) -> None:
        """Raises what any of them was told."""
        self._stop.set()
        await asyncio.gather(*self._tasks)
