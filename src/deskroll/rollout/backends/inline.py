"""Inline: episodes run in the coordinator's own process, as tasks of its loop. For debugging, and for small runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from contextlib import AsyncExitStack
from typing import Any, ClassVar, Self

from deskroll.errors import DeskrollError, WorkerLost
from deskroll.events import EventSink
from deskroll.models.plugin import ModelPlugin
from deskroll.rollout.backends.base import Backend, BackendContext, WorkerStatus
from deskroll.rollout.backends.runner import AttemptRunner
from deskroll.rollout.cancelled import being_cancelled
from deskroll.rollout.context import Leases, ProcessContext
from deskroll.rollout.orders import AttemptName, Order, WorkerSetup
from deskroll.rollout.spec import Definition
from deskroll.types import Episode, EpisodeKey


class InlineBackend(Backend):
    """Runs attempts right here. A crash of one is a crash of all: use processes for anything that matters."""

    has_workers: ClassVar[bool] = False

    def __init__(
        self,
        setup: WorkerSetup,
        *,
        leases: Leases | None = None,
        sink: EventSink | None = None,
        model: ModelPlugin | None = None,
    ) -> None:
        self._setup = setup
        self._leases = leases
        self._model = model
        self._sink = sink
        self._stack = AsyncExitStack()
        self._context: ProcessContext | None = None
        self._runner: AttemptRunner | None = None
        self._dumps: set[asyncio.Task[None]] = set()

    @classmethod
    def for_run(cls, setup: WorkerSetup, settings: Any, context: BackendContext) -> Self:
        """See `Backend`."""
        return cls(setup, leases=context.leases, sink=context.sink, model=context.model)

    async def __aenter__(self) -> Self:
        sink = self._sink if self._setup.events else None
        context = ProcessContext.open(self._setup, leases=self._leases, sink=sink, show_traces=True, model=self._model)
        self._context = await self._stack.enter_async_context(context)
        self._runner = AttemptRunner(self._context)
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._dumps:
            task.cancel()
        await asyncio.gather(*self._dumps, return_exceptions=True)
        await self._stack.aclose()

    def define(self, definition: Definition) -> None:
        """Remember it until its first order comes."""
        if self._context is None:
            raise RuntimeError("the backend is not open: use it with `async with`")
        self._context.define(definition)

    def forget(self, digest: str) -> None:
        """Let go of it."""
        if self._context is not None:
            self._context.forget(digest)

    async def run(self, order: Order) -> Episode | None:
        """Run one attempt to its end; None where it was given back before that."""
        runner = self._require()
        running = asyncio.create_task(runner.run(runner.take(order)))
        running.add_done_callback(lambda _: runner.drop(order))  # it may be ended before it begins
        try:
            return await running
        except asyncio.CancelledError:
            if being_cancelled():
                raise
            raise WorkerLost(f"the task that ran {order.name} was cancelled from within") from None

    def stop(self, key: EpisodeKey, attempt: int, error: DeskrollError | None, visit: int | None = None) -> bool:
        """End an attempt now."""
        self._require().stop(key, attempt, error, visit)
        return True

    def give_back(self, attempts: Collection[AttemptName]) -> asyncio.Future[int]:
        """Give back what has not begun."""
        kept: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        kept.set_result(self._require().give_back(attempts))
        return kept

    def dump(self, key: EpisodeKey, attempt: int, why: str) -> None:
        """Write an attempt's stack to its folder."""
        task = asyncio.create_task(self._require().dump(key, attempt, why))
        self._dumps.add(task)
        task.add_done_callback(self._dumps.discard)

    def workers(self) -> list[WorkerStatus]:
        """This process."""
        if self._runner is None:
            return []
        vitals = self._runner.vitals()
        return [WorkerStatus(name="inline", pid=os.getpid(), vitals=vitals, running=vitals.running)]

    def _require(self) -> AttemptRunner:
        if self._runner is None:
            raise RuntimeError("the backend is not open: use it with `async with`")
        return self._runner
