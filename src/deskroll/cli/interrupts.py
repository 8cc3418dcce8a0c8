"""Ctrl-C during a run: once, twice, three times."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine

from rich.console import Console

from deskroll.cli import counted
from deskroll.rollout.session import Session
from deskroll.types import Episode

_STOP_S = 30.0
"""How long what was told to stop may take."""


class Interrupts:
    """Ctrl-C once: finish what runs. Twice: stop now. Three times: give up waiting for that."""

    def __init__(self, session: Session, console: Console) -> None:
        self.count = 0
        self._session = session
        self._console = console
        self._task: asyncio.Task[list[Episode]] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._terminate)

    def __exit__(self, *exc: object) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
        if self._timer is not None:
            self._timer.cancel()

    async def guarded(self, work: Coroutine[object, object, list[Episode]]) -> list[Episode]:
        """Wait for the run; what does not stop when told so is left."""
        self._task = asyncio.create_task(work)
        try:
            return await self._task
        except asyncio.CancelledError:
            if self.count > 1 and not _being_cancelled():
                return []
            raise

    def _interrupt(self) -> None:
        self.count += 1
        running = len(self._session.engine.running)
        if self.count == 1:
            self._console.print(
                f"stopping: {counted(running, 'episode')} under way will finish; Ctrl-C again stops now"
            )
            self._session.stop()
        elif self.count == 2:
            self._console.print("stopping now")
            self._now()
        elif self._task is not None:
            self._task.cancel()

    def _terminate(self) -> None:
        self.count = max(self.count, 2)
        self._now()

    def _now(self) -> None:
        self._session.stop(now=True)
        if self._task is not None:
            self._timer = asyncio.get_running_loop().call_later(_STOP_S, self._task.cancel)


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
