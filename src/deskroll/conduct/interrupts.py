"""Ctrl-C during a run: once, twice, three times; and SIGTERM and SIGHUP, which mean twice.

Guarantees, from before anything is opened until everything is closed: no signal ends the process at once, so that no
desktop, worker or socket is left. Before the run goes on, what is being opened is closed again; after it, closing is
not disturbed by one more signal.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine

from rich.console import Console

from deskroll.report.words import counted
from deskroll.rollout.cancelled import being_cancelled
from deskroll.rollout.session import Session
from deskroll.types import Episode

_STOP_S = 30.0
"""How long what was told to stop may take."""
_AGAIN_S = 0.25
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Ctrl-C once: finish what has begun. Twice: stop now. Three times: give up waiting for that."""

    def __init__(self, console: Console) -> None:
        self.count = 0
        """How often the run itself was interrupted."""
        self._console = console
        self._main: asyncio.Task[object] | None = None
        self._session: Session | None = None
        self._task: asyncio.Task[list[Episode]] | None = None
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

    async def guarded(self, session: Session, work: Coroutine[object, object, list[Episode]]) -> list[Episode]:
        """Wait for the run; what does not stop when told so is left."""
        self._session, self._task = session, asyncio.create_task(work)
        try:
            return await self._task
        except asyncio.CancelledError:
            if self.count > 1 and not being_cancelled():
                return []
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
            self._stop(self._session, self._task, now=number != signal.SIGINT)

    def _stop(self, session: Session, task: asyncio.Task[list[Episode]], *, now: bool) -> None:
        self.count = max(self.count + 1, 2 if now else 1)
        if self.count == 1:
            session.stop()
            self._telling = asyncio.create_task(self._tell(session))
        elif self._timer is None:
            self._console.print("stopping now")
            self._end(session, task, asyncio.get_running_loop().time() + _STOP_S)
        elif not now:
            task.cancel()

    async def _tell(self, session: Session) -> None:
        """Say what becomes of the episodes, as soon as the workers have said what they have begun."""
        finishing = await session.finishing()
        standing = session.state.standing()
        left = max(0, standing.planned - standing.done - finishing)
        ends = f"{counted(finishing, 'episode')} under way will finish" if finishing else "no episode is under way"
        if self.count == 1:
            self._console.print(f"stopping: {ends}, {left:,} left for a resume; Ctrl-C again stops now")

    def _end(self, session: Session, task: asyncio.Task[list[Episode]], deadline: float) -> None:
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
