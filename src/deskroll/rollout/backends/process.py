"""Processes: episodes run in worker processes, one a core by default, many episodes each.

Guarantees: a worker that dies, hangs or eats memory is noticed, logged and replaced; what it ran ends as `WorkerLost`,
and no other worker is touched. An attempt that is ordered `isolated` has a worker of its own. After the block no worker
is left; a worker whose coordinator dies ends at once. Where what listens to workers or looks after them dies itself,
every attempt ends with that error: nobody waits for what nobody would hear of.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
import time
from collections.abc import Collection
from typing import Any, Self

from deskroll.errors import BackendLost, BackgroundLost, DeskrollError, WorkerLost, plain
from deskroll.events import Event, EventSink, WorkerDied, WorkerLogged, WorkerStarted, guarded
from deskroll.host.supervise import Supervisor
from deskroll.host.zygote import READY_S
from deskroll.report.words import counted
from deskroll.rollout.backends.base import Backend, BackendContext, WorkerStatus
from deskroll.rollout.backends.placement import choose_worker
from deskroll.rollout.backends.wire import Setup
from deskroll.rollout.backends.worker_handle import WorkerHandle
from deskroll.rollout.backends.zygote import WorkerZygote
from deskroll.rollout.config import WorkerSettings
from deskroll.rollout.orders import AttemptName, Order, WorkerSetup
from deskroll.rollout.spec import Definition
from deskroll.rollout.stopping import RUN_STOPS
from deskroll.types import Episode, EpisodeKey

_log = logging.getLogger(__name__)
_HUNG_AT = re.compile(r'Current thread 0x.*\n +(File ".*", line \d+ in \S+)')
"""Where a stack that was printed begins."""
_LOOK_S = 1.0
_TRIES = 30
_STACK_S = 5.0
"""How long hanging workers have to print their stacks."""
_GLANCE_S = 0.2


class ProcessBackend(Backend):
    """Use with `async with`."""

    def __init__(
        self,
        setup: WorkerSetup,
        settings: WorkerSettings | None = None,
        *,
        keep: tuple[int, ...] = (),
        sink: EventSink | None = None,
    ) -> None:
        self._settings = settings or WorkerSettings()
        self._workers = self._settings.workers or os.cpu_count() or 1
        self._setup = Setup(setup=setup, path=tuple(sys.path))
        self._definitions: dict[str, Definition] = {}
        self._sink = guarded(sink)
        self._zygote = WorkerZygote(keep)
        self._handles: list[WorkerHandle] = []
        self._changed = asyncio.Condition()
        self._isolation = asyncio.Semaphore(self._settings.isolated_workers)
        self._background = Supervisor(self._hear_lost, so=RUN_STOPS)
        self._unwanted: dict[AttemptName, DeskrollError | None] = {}
        """Attempts that were stopped before they had a worker."""
        self._waiting: set[AttemptName] = set()
        """Attempts that have no worker yet."""
        self._given_back: set[AttemptName] = set()
        """Of these, those that were asked back."""
        self._broken: DeskrollError | None = None
        self._lost: asyncio.Future[DeskrollError] = asyncio.get_running_loop().create_future()
        self._closing = False

    @classmethod
    def for_run(cls, setup: WorkerSetup, settings: Any, context: BackendContext) -> Self:
        """See `Backend`."""
        return cls(setup, context.workers, keep=context.keep, sink=context.sink)

    async def __aenter__(self) -> Self:
        await self._zygote.__aenter__()
        try:
            for _ in range(self._workers):
                await self._start_worker()
        except BaseException:
            await self.__aexit__()
            raise
        self._background.start("what looks after the workers", self._look_after())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._closing = True
        try:
            await asyncio.gather(*(handle.dismiss() for handle in self._handles))
        finally:
            await self._background.close()
            await self._zygote.__aexit__()

    @property
    def lost(self) -> asyncio.Future[DeskrollError]:
        """See `Backend`."""
        return self._lost

    def define(self, definition: Definition) -> None:
        """Keep it for every worker that gets an order with its digest."""
        self._definitions[definition.digest] = definition

    def forget(self, digest: str) -> None:
        """Let go of it, and have every worker do so that knows it."""
        self._definitions.pop(digest, None)
        for handle in self._handles:
            handle.forget(digest)

    async def run(self, order: Order) -> Episode | None:
        """Run one attempt: on a worker that `choose_worker` names, or on one of its own; None: it was given back."""
        name = (order.key, order.attempt)
        self._waiting.add(name)
        try:
            if not order.isolated:
                return await self._run_on(await self._free_worker(), order)
            async with self._isolation:
                return await self._run_alone(order)
        finally:
            self._waiting.discard(name)
            self._given_back.discard(name)
            self._unwanted.pop(name, None)

    async def _run_alone(self, order: Order) -> Episode | None:
        if (order.key, order.attempt) in self._given_back:
            return None
        if self._broken is not None:
            raise self._broken
        handle = await self._restart_worker(isolated=True)
        try:
            return await self._run_on(handle, order)
        finally:
            await asyncio.shield(handle.dismiss())

    def stop(self, key: EpisodeKey, attempt: int, error: DeskrollError | None, visit: int | None = None) -> bool:
        """End an attempt now; whether a worker runs it."""
        if (handle := self._of(key, attempt)) is not None:
            handle.stop(key, attempt, error, visit)
            return True
        if visit is None and (key, attempt) in self._waiting:
            self._unwanted[key, attempt] = error
        return False

    def give_back(self, attempts: Collection[AttemptName]) -> asyncio.Future[int]:
        """Have what has not begun given back, whether or not it has a worker yet."""
        self._given_back.update(self._waiting.intersection(attempts))
        return asyncio.create_task(self._count_kept(attempts))

    def dump(self, key: EpisodeKey, attempt: int, why: str) -> None:
        """Write down where an attempt stands."""
        if (handle := self._of(key, attempt)) is not None:
            handle.dump(key, attempt, why)

    def workers(self) -> list[WorkerStatus]:
        """What every worker does."""
        return [handle.status() for handle in self._handles]

    async def _count_kept(self, attempts: Collection[AttemptName]) -> int:
        return sum(await asyncio.gather(*(handle.give_back(attempts) for handle in self._handles)))

    async def _run_on(self, handle: WorkerHandle, order: Order) -> Episode | None:
        name = (order.key, order.attempt)
        self._waiting.discard(name)
        if name in self._given_back:
            return None
        if name in self._unwanted:
            asyncio.get_running_loop().call_soon(handle.stop, *name, self._unwanted.pop(name))
        return await handle.run(order, self._definitions[order.spec])

    def _of(self, key: EpisodeKey, attempt: int) -> WorkerHandle | None:
        return next((handle for handle in self._handles if handle.has(key, attempt)), None)

    async def _free_worker(self) -> WorkerHandle:
        async with self._changed:
            while True:
                if self._broken is not None:
                    raise self._broken
                if shared := [handle for handle in self._handles if not handle.isolated and not handle.gone]:
                    return shared[choose_worker([handle.load for handle in shared])]
                await self._changed.wait()

    async def _start_worker(self, *, isolated: bool = False) -> WorkerHandle:
        handle = await WorkerHandle.start(self._zygote, self._setup, isolated=isolated)
        self._handles.append(handle)
        self._sink.emit(WorkerStarted(worker=handle.pid, isolated=isolated))
        self._background.start(f"what listens to worker {handle.pid}", self._attend(handle))
        return handle

    async def _attend(self, handle: WorkerHandle) -> None:
        """Listen to a worker until it is gone, and put another in its place."""
        started = time.monotonic()
        try:
            await handle.listen(self._hear, self._zygote)
        finally:
            self._handles.remove(handle)
        if handle.last_words and not self._closing:
            _log.warning("worker %d is gone; workers last printed:\n%s", handle.pid, handle.last_words)
        if self._closing or handle.isolated:
            return
        if self._zygote.gone:
            await self._give_up(BackendLost(self._zygote.gone))
            return
        if handle.broken is not None:
            await self._give_up(handle.broken)
            return
        _log.warning("%s; %s to be run again", handle.gone, counted(handle.lost, "episode"))
        self._sink.emit(WorkerDied(worker=handle.pid, reason=handle.gone, attempts=handle.lost))
        # One that dies as soon as it is started must not be started as fast as that.
        await asyncio.sleep(max(0.0, _LOOK_S - (time.monotonic() - started)))
        await self._replace()
        async with self._changed:
            self._changed.notify_all()

    async def _replace(self) -> None:
        """Put another in the place of a worker that is gone."""
        try:
            await self._restart_worker()
        except WorkerLost as error:
            await self._give_up(BackendLost(str(error)))
        except BackendLost as error:
            await self._give_up(error)

    async def _restart_worker(self, *, isolated: bool = False) -> WorkerHandle:
        """A new worker; where there is no room for one, try for a while."""
        for _ in range(_TRIES - 1):
            try:
                return await self._start_worker(isolated=isolated)
            except WorkerLost:
                await asyncio.sleep(_LOOK_S)
        return await self._start_worker(isolated=isolated)

    def _hear(self, events: list[Event]) -> None:
        """What a worker tells; log lines go to the log, too."""
        for event in events:
            if isinstance(event, WorkerLogged):
                logging.getLogger(event.logger).log(event.level, "%s", plain(event.reason, 2000))
            self._sink.emit(event)

    async def _give_up(self, error: DeskrollError) -> None:
        """No worker will ever come up any more."""
        self._broken = error
        if not self._lost.done():
            self._lost.set_result(error)
        async with self._changed:
            self._changed.notify_all()

    async def _look_after(self) -> None:
        """Find workers that hang or eat memory."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self._zygote.forget_words()
            for handle in self._handles:
                handle.check_memory(self._settings.worker_memory_mb)
            if hanging := [handle for handle in self._handles if self._hangs(handle)]:
                words = await self._stacks(hanging)
                for handle in hanging:
                    if self._hangs(handle):  # it may have come round meanwhile
                        handle.last_words = words
                        place = _HUNG_AT.findall(words)
                        where = f" in {place[-1]}" if len(hanging) == 1 and place else ""
                        handle.kill(f"it hung for {handle.silent_s:.0f} s{where}")

    def _hangs(self, handle: WorkerHandle) -> bool:
        allowed = max(self._settings.hang_after, READY_S) if handle.starting else self._settings.hang_after
        return not handle.gone and not handle.killed_for and handle.silent_s > allowed

    async def _stacks(self, handles: list[WorkerHandle]) -> str:
        """What workers have printed since these were asked where they stand."""
        before = self._zygote.printed()
        for handle in handles:
            handle.ask_stack()
        for _ in range(int(_STACK_S / _GLANCE_S)):
            await asyncio.sleep(_GLANCE_S)
            if len(_HUNG_AT.findall(self._zygote.words_since(before))) >= len(handles):
                break
        await asyncio.sleep(_GLANCE_S)  # for the rest of the last one
        return self._zygote.words_since(before)

    def _hear_lost(self, lost: BackgroundLost) -> None:
        if self._closing:
            _log.warning("while workers were let go: %s", lost)
            return
        self._background.start("what tells that there are no workers any more", self._give_up(lost))
        for handle in self._handles:
            handle.lose(lost)
