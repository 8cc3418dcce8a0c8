"""Ctrl-C during a run: once, twice, three times; and SIGTERM and SIGHUP, which mean twice, unless told otherwise.

Guarantees, from before anything is opened until everything is closed: no signal ends the process at once, so that no
desktop, worker or socket is left. Before the run goes on, what is being opened is closed again; after it, closing is
not disturbed by one more signal.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Collection, Coroutine
from typing import Any, Protocol, TypeVar

from rich.console import Console

from deskroll.rollout.cancelled import being_cancelled

T = TypeVar("T")
_STOP_S = 30.0
"""How long what was told to stop may take."""
_AGAIN_S = 0.25
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruptible(Protocol):
    """What goes on until it ends, or is told to."""

    def stop(self, now: bool = False) -> None:
        """Start nothing more; `now`: end what runs, too."""

    async def farewell(self) -> str:
        """What becomes of what runs, once it was told to stop, in words."""


class Interrupts:
    """Ctrl-C once: finish what has begun. Twice: stop now. Three times: give up waiting for that."""

    def __init__(self, console: Console, urgent: Collection[signal.Signals] = (signal.SIGTERM, signal.SIGHUP)) -> None:
        """`urgent`: signals that mean twice."""
        self.count = 0
        """How often the run itself was interrupted."""
        self._console = console
        self._main: asyncio.Task[object] | None = None
        self._urgent = urgent
        self._session: Interruptible | None = None
        self._task: asyncio.Task[Any] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing = 0
        self._handled: list[signal.Signals] = []

    def __enter__(self) -> Interrupts:
        self._main = asyncio.current_task()
        loop = asyncio.get_running_loop()
        # What was ignored at the start stays so: somebody wants the run to outlive its terminal (nohup).
        self._handled = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
        if threading.current_thread() is not threading.main_thread():
            self._handled = []  # only the main thread gets signals, and it is somebody else's
        for number in self._handled:
            loop.add_signal_handler(number, self._interrupt, number)
        return self

    def __exit__(self, *exc: object) -> None:
        loop = asyncio.get_running_loop()
        for number in self._handled:
            loop.remove_signal_handler(number)

    async def guarded(self, session: Interruptible, work: Coroutine[object, object, T]) -> T | None:
        """Wait for the run; what does not stop when told so is left, and nothing came of it then."""
        self._session, self._task = session, (task := asyncio.create_task(work))
        try:
            return await task
        except asyncio.CancelledError:
            if self.count > 1 and not being_cancelled():
                return None
            raise
        finally:
            if self._telling is not None:
                await asyncio.wait([self._telling])
            if self._timer is not None:
                self._timer.cancel()

    def _interrupt(self, number: int) -> None:
        if self._session is None or self._task is None:
            self._cancel()
        elif self._task.done():
            self._disturb()
        else:
            self._stop(self._session, self._task, now=number in self._urgent)

    def _stop(self, session: Interruptible, task: asyncio.Task[Any], *, now: bool) -> None:
        self.count = max(self.count + 1, 2 if now else 1)
        if self.count == 1:
            session.stop()
            self._telling = asyncio.create_task(self._tell(session))
        elif self._timer is None:
            self._console.print("stopping now")
            self._end(session, task, asyncio.get_running_loop().time() + _STOP_S)
        elif not now:
            task.cancel()

    async def _tell(self, session: Interruptible) -> None:
        """Say what becomes of what runs, as soon as that is known."""
        said = await session.farewell()
        if self.count == 1:
            self._console.print(said)

    def _end(self, session: Interruptible, task: asyncio.Task[Any], deadline: float) -> None:
        """Stop what runs, and again until nothing does: what is on its way to a worker is not there to be stopped."""
        loop = asyncio.get_running_loop()
        if loop.time() >= deadline:
            task.cancel()
            return
        session.stop(now=True)
        self._timer = loop.call_later(_AGAIN_S, self._end, session, task, deadline)

    def _disturb(self) -> None:
        self._closing += 1
        if self._closing == 1:
            self._console.print("closing, which takes a moment; Ctrl-C again gives up waiting for it")
        else:
            self._cancel()

    def _cancel(self) -> None:
        if self._main is not None:
            self._main.cancel()
