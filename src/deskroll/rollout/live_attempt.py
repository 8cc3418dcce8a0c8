"""LiveAttempt: one attempt while it runs: what it does now, where its time went, and who stopped it.

Guarantees: from the first `enter` on, every second belongs to exactly one stage.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from deskroll.clocks import running_time
from deskroll.errors import DeskrollError
from deskroll.events import EventSink, NullSink, StageEntered, WaitChanged
from deskroll.rollout.orders import Order
from deskroll.types import Stage

_NOBODY = NullSink()


class LiveAttempt:
    """Made when an attempt is taken on; `enter` at each change of stage, which the sink is told."""

    def __init__(self, order: Order, sink: EventSink = _NOBODY) -> None:
        self.order = order
        self._sink = sink
        self._process = os.getpid()
        self.started_at = time.time()
        self.stage = Stage.SETUP
        self.seconds: dict[str, float] = {Stage.PERMIT: order.waited_s}
        self.desktop = ""
        self.turn = 0
        self.stopped_by: DeskrollError | None = None
        """Why somebody stopped it; None with `cancelled` set: because it was not wanted any more."""
        self.cancelled = False
        self.begun = False
        """Whether its set-up has begun: it holds the desktop that it needs."""
        self.given_back = False
        """Whether it was ended before that, so that nothing came of it."""
        self._sealing = False
        self.task: asyncio.Task[object] | None = None
        """Whatever carries it."""
        self.note: Callable[[str, bytes], None] | None = None
        """Keeps a small file in its folder."""
        self.look: Callable[[], Awaitable[bytes]] | None = None
        """Takes a picture of its desktop."""
        self.visit = 0
        """How many stages it has entered: a stop that is meant for one of them does not hit the next."""
        self._since = time.perf_counter()
        self._waits = 0

    def check_wanted(self) -> None:
        """Nothing, unless it was stopped before its task could run: then that is raised here."""
        if self.cancelled:
            raise asyncio.CancelledError

    def begin(self) -> None:
        """Its set-up begins: from now on it comes to its end, unless it is stopped."""
        self.begun = True
        self.enter(Stage.SETUP)

    def enter(self, stage: Stage) -> None:
        """End the stage so far, and begin another."""
        now = time.perf_counter()
        self.seconds[self.stage] = self.seconds.get(self.stage, 0.0) + now - self._since
        self.stage, self._since = stage, now
        self.visit += 1
        order = self.order
        self._sink.emit(
            StageEntered(
                key=order.key,
                attempt=order.attempt,
                stage=stage,
                visit=self.visit,
                worker=self._process,
                ran_s=running_time(),
                desktop=self.desktop,
                turn=self.turn,
            )
        )

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """What happens in this block is a wait for its turn: no silence of whoever is asked then."""
        self._waits += 1
        if self._waits == 1:
            self._tell_wait(waiting=True)
        try:
            yield
        finally:
            self._waits -= 1
            if not self._waits:
                self._tell_wait(waiting=False)

    def _tell_wait(self, *, waiting: bool) -> None:
        order = self.order
        self._sink.emit(WaitChanged(key=order.key, attempt=order.attempt, waiting=waiting, ran_s=running_time()))

    def shift(self, source: Stage, target: Stage, seconds: float) -> None:
        """Of the time of one stage, some belonged to another."""
        moved = min(max(seconds, 0.0), self.seconds.get(source, 0.0))
        if moved:
            self.seconds[source] -= moved
            self.seconds[target] = self.seconds.get(target, 0.0) + moved

    def stop(self, error: DeskrollError | None, visit: int | None = None) -> None:
        """End it now: as a failure of the error's class, or without one because nobody wants it any more.

        `visit`: only if it still is in that stage.
        """
        if not self.cancelled and not self._sealing and visit in (None, self.visit):
            self.cancelled, self.stopped_by = True, error
            if self.task is not None:
                self.task.cancel()

    def give_back(self) -> None:
        """End it if it has not begun."""
        if not self.begun and not self.cancelled and not self._sealing:
            self.given_back = True
            self.stop(None)

    def seal(self) -> None:
        """It is over and is being written: from now on it is too late to stop it."""
        self._sealing = True
        self.enter(Stage.STORE)
