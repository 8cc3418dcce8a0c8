"""Warm workers: kept for the next job, a few at most, and ended when none comes for a while.

Guarantees: a worker has one job at a time. One that failed a job, was interrupted in it or is spent (a model's code
ran in it) is ended at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from deskroll.envs.osworld.evaluate.upstream.process import Worker

_IDLE_S = 60.0
MOST = 2
"""Workers at a time: there is a pool in each process of a run, and about as many of those as cores."""


class WorkerPool:
    """The workers of one event loop. `close` it when no more jobs come; those that wait end by themselves, too."""

    def __init__(self, environment: Path, most: int = MOST) -> None:
        self._environment = environment
        self._free = asyncio.Semaphore(most)
        self._waiting: list[tuple[Worker, asyncio.TimerHandle]] = []
        self._ending: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[Worker]:
        """A worker for one job."""
        async with self._free:
            worker = await self._take()
            try:
                yield worker
            except BaseException:
                await worker.end()
                raise
            if worker.spent:
                await worker.end()
            else:
                self._keep(worker)

    async def _take(self) -> Worker:
        while self._waiting:
            worker, timer = self._waiting.pop()
            timer.cancel()
            if worker.alive:
                return worker
            await worker.end()
        worker = Worker(self._environment)
        try:
            await worker.start()
        except BaseException:
            await worker.end()
            raise
        return worker

    def _keep(self, worker: Worker) -> None:
        timer = asyncio.get_running_loop().call_later(_IDLE_S, self._retire, worker)
        self._waiting.append((worker, timer))

    def _retire(self, worker: Worker) -> None:
        self._waiting = [each for each in self._waiting if each[0] is not worker]
        task = asyncio.ensure_future(worker.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End those that wait."""
        waiting, self._waiting = self._waiting, []
        for worker, timer in waiting:
            timer.cancel()
            await worker.end()
        await asyncio.gather(*self._ending)
