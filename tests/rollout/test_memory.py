"""A coordinator keeps of an outcome what decisions need, however long the run and whatever an agent answers."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Collection
from pathlib import Path

from deskroll.errors import DeskrollError
from deskroll.rollout.backends import WorkerStatus
from deskroll.rollout.engine import Engine
from deskroll.rollout.job import Job
from deskroll.rollout.job_run import start_job
from deskroll.rollout.limits import Limits
from deskroll.rollout.orders import AttemptName, Order
from deskroll.rollout.spec import Definition, EpisodeSpec
from deskroll.store import RunInfo, RunStore
from deskroll.types import Episode, EpisodeKey, Score, Stage, StopReason, Usage
from tests.rollout.conftest import questions

EPISODES = 1500
FEW = 500
ANSWER = 5_000
"""Characters of each answer."""
MOST = 700
"""Bytes that may be kept of each outcome: about 300 are, a third of them in caches that are full in the end."""


class Instant:
    """A backend whose attempts are over at once, with an answer of their own each; it looks at what is kept by then."""

    def __init__(self, store: RunStore) -> None:
        self.kept: dict[int, int] = {}
        """Bytes, when so many attempts were ordered."""
        self._store = store
        self._ordered = 0

    async def run(self, order: Order) -> Episode:
        self._ordered += 1
        if self._ordered in (FEW, EPISODES):
            await self._look(self._ordered)
        await asyncio.sleep(0)
        task = order.key.task
        return Episode(
            key=EpisodeKey(phase="eval", round=0, task=f"{task}", sample=0), attempt=order.attempt,
            stop=StopReason.ANSWER, score=Score(value=1.0, reason=f"{task} is as expected"),
            answer=f"{task:>{ANSWER}}", usage=Usage(prompt_tokens=1000), seconds=dict.fromkeys(Stage, 0.1),
        )  # fmt: skip

    async def _look(self, ordered: int) -> None:
        await self._store.sync()  # what is still on its way to the disk is not kept
        gc.collect()
        self.kept[ordered] = tracemalloc.get_traced_memory()[0]

    def stop(self, key: EpisodeKey, attempt: int, error: DeskrollError | None, visit: int | None = None) -> None:
        raise NotImplementedError

    def define(self, definition: Definition) -> None:
        pass

    def give_back(self, attempts: Collection[AttemptName]) -> asyncio.Future[int]:
        raise NotImplementedError

    def dump(self, key: EpisodeKey, attempt: int, why: str) -> None:
        raise NotImplementedError

    def workers(self) -> list[WorkerStatus]:
        return []


async def test_what_is_kept_of_an_outcome_does_not_grow_with_it(tmp_path: Path) -> None:
    info = RunInfo(run_id="run", version="1", config={}, config_digest="")
    async with RunStore.create(tmp_path / "run", info) as store:
        backend = Instant(store)
        engine = Engine(backend, store, Limits(4))
        tracemalloc.start()
        try:
            outcomes = await start_job(engine, Job("eval", questions(EPISODES), EpisodeSpec())).outcomes()
        finally:
            tracemalloc.stop()
    assert (backend.kept[EPISODES] - backend.kept[FEW]) / (EPISODES - FEW) < MOST
    assert [len(each.answer or "") for each in outcomes] == [ANSWER] * EPISODES, "all of it is in the journal"
