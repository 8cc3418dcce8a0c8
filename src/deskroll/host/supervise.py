"""Supervise: what goes on in the background for something else cannot die unseen.

Each piece of work is a task with a name. It is dead when it raises, or when anybody but its supervisor cancels it. What
is started with `start` then ends what it serves: whoever that is, is told at once, by the name and with the reason.
What is kept with `keep` is started again, which the log says in a line. Nothing outlives its supervisor.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager

from deskroll.errors import BackgroundLost, plain
from deskroll.host.backoff import Backoff

_log = logging.getLogger(__name__)
_AGAIN = Backoff(base=0.1, longest=5.0)
_LIVED_S = 60.0
"""Work that went on for so long has not died in a row with what died before it."""
Work = Coroutine[object, object, None]


class Supervisor:
    """The background work of one thing. `close` it in any case."""

    def __init__(self, on_lost: Callable[[BackgroundLost], None] | None = None, *, so: str = "") -> None:
        """`on_lost` is told of each death, with what follows from it (`so`) in the message."""
        self._on_lost = on_lost
        self._so = so
        self._tasks: set[asyncio.Task[None]] = set()
        self._kept: dict[str, int] = {}
        """What is started again, and how often it has died in a row."""
        self._closed = False

    def start(self, name: str, work: Work) -> asyncio.Task[None]:
        """Do this in the background; where it dies, what it serves does."""
        return self._begin(name, work, self._tell)

    def keep(self, name: str, work: Callable[[], Work]) -> None:
        """Do this in the background, and start it again whenever it dies; once for each name."""
        if name not in self._kept:
            self._kept[name] = 0
            self._start_kept(name, work)

    def cancel(self) -> None:
        """End all of it, which is no death; nothing is started again."""
        self._closed = True
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """The same, and wait until it has ended."""
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, name: str, work: Work, hear: Callable[[str, BaseException], None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)

        def end(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if error is None or (self._closed and task.cancelled()):
                return
            if self._closed:
                _log.warning("%s", lost_work(name, error, "nobody needs it any more"))
            else:
                hear(name, error)

        task.add_done_callback(end)
        return task

    def _tell(self, name: str, error: BaseException) -> None:
        if self._on_lost is not None:
            self._on_lost(lost_work(name, error, self._so))

    def _start_kept(self, name: str, work: Callable[[], Work]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()

        def start_again(name: str, error: BaseException) -> None:
            self._kept[name] = 1 if loop.time() - began > _LIVED_S else self._kept[name] + 1
            _log.warning("%s", lost_work(name, error, "is started again"))
            _log.debug("%s died", name, exc_info=error)
            loop.call_later(_AGAIN.pause(self._kept[name]), self._start_kept, name, work)

        if not self._closed:
            self._begin(name, work(), start_again)


@asynccontextmanager
async def supervise(parts: Mapping[str, Work], so: str) -> AsyncIterator[asyncio.Future[BackgroundLost]]:
    """Do each part beside the block, and end it with the block; what comes back is done once one of them has died."""
    died: asyncio.Future[BackgroundLost] = asyncio.get_running_loop().create_future()
    supervisor = Supervisor(lambda lost: None if died.done() else died.set_result(lost), so=so)
    for name, part in parts.items():
        supervisor.start(name, part)
    try:
        yield died
    finally:
        await supervisor.close()


def lost_work(name: str, error: BaseException, so: str) -> BackgroundLost:
    """The error that background work died, and what follows from it, in a line."""
    why = f"{type(error).__name__}: {plain(str(error))}" if str(error) else type(error).__name__
    lost = BackgroundLost(f"{name} died ({why}), and {so}")
    lost.unforeseen = error
    lost.__cause__ = error
    return lost
