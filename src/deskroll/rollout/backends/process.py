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
from collections.abc import Coroutine

import msgspec

from deskroll.errors import BackendLost, DeskrollError, WorkerLost, plain
from deskroll.events import Event, EventSink, WorkerDied, WorkerLogged, WorkerStarted, guarded
from deskroll.report.words import counted
from deskroll.rollout.backends.base import WorkerVitals
from deskroll.rollout.backends.nursery import READY_S, Nursery
from deskroll.rollout.backends.wire import Setup
from deskroll.rollout.backends.worker_handle import WorkerHandle
from deskroll.rollout.background import lost_part
from deskroll.rollout.orders import Keys, Order, RunSpec
from deskroll.types import Episode, EpisodeKey, Record

_log = logging.getLogger(__name__)
_HUNG_AT = re.compile(r'Current thread 0x.*\n +(File ".*", line \d+ in \S+)')
"""Where a stack that was printed begins."""
_LOOK_S = 1.0
_TRIES = 30
_STACK_S = 5.0
"""How long hanging workers have to print their stacks."""
_GLANCE_S = 0.2


class ProcessConfig(Record, frozen=True):
    """How workers are kept."""

    workers: int | None = None
    """How many; None: one a core."""
    memory_mb: float = 4096.0
    """A worker that has more memory than this for itself is replaced."""
    hang_after: float = 30.0
    """A worker of which nothing was heard for so long, in seconds, is replaced; while it starts, not before 90 s."""
    isolated: int = 32
    """The most attempts that have a worker of their own at a time."""


class ProcessBackend:
    """Use with `async with`."""

    def __init__(
        self,
        spec: RunSpec,
        config: ProcessConfig | None = None,
        *,
        keys: Keys | None = None,
        keep: tuple[int, ...] = (),
        sink: EventSink | None = None,
    ) -> None:
        self._setup = Setup(spec=spec, keys=keys or Keys(), path=tuple(sys.path))
        self._config = config or ProcessConfig()
        self._sink = guarded(sink)
        self._nursery = Nursery(keep)
        self._handles: list[WorkerHandle] = []
        self._changed = asyncio.Condition()
        self._isolation = asyncio.Semaphore(self._config.isolated)
        self._tasks: set[asyncio.Task[None]] = set()
        self._unwanted: dict[tuple[EpisodeKey, int], DeskrollError | None] = {}
        """Attempts that were stopped before they had a worker."""
        self._broken: DeskrollError | None = None
        self._giving_back = False
        self._closing = False

    async def __aenter__(self) -> ProcessBackend:
        await self._nursery.__aenter__()
        try:
            for _ in range(self._config.workers or os.cpu_count() or 1):
                await self._start_worker()
        except BaseException:
            await self.__aexit__()
            raise
        self._spawn(self._look_after(), "what looks after the workers")
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._closing = True
        try:
            await asyncio.gather(*(handle.dismiss() for handle in self._handles))
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._nursery.__aexit__()

    async def run(self, order: Order) -> Episode | None:
        """Run one attempt: on the worker that has the least to do, or on one of its own; None: it was given back."""
        try:
            if not order.isolated:
                return await self._run_on(await self._idlest(), order)
            async with self._isolation:
                return await self._run_alone(order)
        finally:
            self._unwanted.pop((order.key, order.attempt), None)

    async def _run_alone(self, order: Order) -> Episode | None:
        if self._giving_back:
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
        if visit is None:
            self._unwanted[key, attempt] = error  # it waits for a worker
        return False

    def give_back(self) -> asyncio.Future[int]:
        """Have every attempt given back that has not begun, whether or not it has a worker yet."""
        self._giving_back = True
        return asyncio.create_task(self._count_kept())

    def dump(self, key: EpisodeKey, attempt: int, why: str) -> None:
        """Write down where an attempt stands."""
        if (handle := self._of(key, attempt)) is not None:
            handle.dump(key, attempt, why)

    def workers(self) -> list[WorkerVitals]:
        """What every worker does."""
        return [msgspec.structs.replace(handle.vitals(), load=handle.load) for handle in self._handles]

    async def _count_kept(self) -> int:
        return sum(await asyncio.gather(*(handle.give_back() for handle in self._handles)))

    async def _run_on(self, handle: WorkerHandle, order: Order) -> Episode | None:
        if self._giving_back:
            return None
        name = (order.key, order.attempt)
        if name in self._unwanted:
            asyncio.get_running_loop().call_soon(handle.stop, *name, self._unwanted.pop(name))
        return await handle.run(order)

    def _of(self, key: EpisodeKey, attempt: int) -> WorkerHandle | None:
        return next((handle for handle in self._handles if handle.has(key, attempt)), None)

    async def _idlest(self) -> WorkerHandle:
        async with self._changed:
            while True:
                if self._broken is not None:
                    raise self._broken
                if shared := [handle for handle in self._handles if not handle.isolated and not handle.gone]:
                    return min(shared, key=lambda handle: handle.load)
                await self._changed.wait()

    async def _start_worker(self, *, isolated: bool = False) -> WorkerHandle:
        handle = await WorkerHandle.start(self._nursery, self._setup, isolated=isolated)
        self._handles.append(handle)
        self._sink.emit(WorkerStarted(worker=handle.pid, isolated=isolated))
        self._spawn(self._attend(handle), f"what listens to worker {handle.pid}")
        return handle

    async def _attend(self, handle: WorkerHandle) -> None:
        """Listen to a worker until it is gone, and put another in its place."""
        started = time.monotonic()
        try:
            await handle.listen(self._hear, self._nursery)
        finally:
            self._handles.remove(handle)
        if handle.last_words and not self._closing:
            _log.warning("worker %d is gone; workers last printed:\n%s", handle.pid, handle.last_words)
        if self._closing or handle.isolated:
            return
        if self._nursery.gone:
            await self._give_up(BackendLost(self._nursery.gone))
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
        async with self._changed:
            self._changed.notify_all()

    async def _look_after(self) -> None:
        """Find workers that hang or eat memory."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self._nursery.forget_words()
            for handle in self._handles:
                if handle.rss_mb() > self._config.memory_mb:
                    handle.kill(f"it had {handle.rss_mb():.0f} MB of memory; allowed: {self._config.memory_mb:g}")
            if hanging := [handle for handle in self._handles if self._hangs(handle)]:
                words = await self._stacks(hanging)
                for handle in hanging:
                    if self._hangs(handle):  # it may have come round meanwhile
                        handle.last_words = words
                        place = _HUNG_AT.findall(words)
                        where = f" in {place[-1]}" if len(hanging) == 1 and place else ""
                        handle.kill(f"it hung for {handle.silent_s:.0f} s{where}")

    def _hangs(self, handle: WorkerHandle) -> bool:
        allowed = max(self._config.hang_after, READY_S) if handle.starting else self._config.hang_after
        return not handle.gone and not handle.killed_for and handle.silent_s > allowed

    async def _stacks(self, handles: list[WorkerHandle]) -> str:
        """What workers have printed since these were asked where they stand."""
        before = self._nursery.printed()
        for handle in handles:
            handle.ask_stack()
        for _ in range(int(_STACK_S / _GLANCE_S)):
            await asyncio.sleep(_GLANCE_S)
            if len(_HUNG_AT.findall(self._nursery.words_since(before))) >= len(handles):
                break
        await asyncio.sleep(_GLANCE_S)  # for the rest of the last one
        return self._nursery.words_since(before)

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._hear_end)

    def _hear_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None or (self._closing and task.cancelled()):
            return
        lost = lost_part(task.get_name(), error)
        if self._closing:
            _log.warning("while workers were let go: %s", lost)
            return
        self._spawn(self._give_up(lost), "what tells that there are no workers any more")
        for handle in self._handles:
            handle.lose(lost)
