"""EventBatch: the events of a worker on their way up, several at a time.

Guarantees: an event is handed over within `EVERY_S`, in the order in which it happened; `take` gives what has to travel
with a message that is sent now. Events of other threads are taken, too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from deskroll.events import Event

EVERY_S = 0.04


class EventBatch:
    """Made inside the event loop that it hands over in."""

    def __init__(self, send: Callable[[list[Event]], None]) -> None:
        self._send = send
        self._events: list[Event] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def emit(self, event: Event) -> None:
        """Take one event."""
        if threading.get_ident() != self._thread:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self.emit, event)
            return
        self._events.append(event)
        if self._timer is None:
            self._timer = self._loop.call_later(EVERY_S, self.flush)

    def take(self) -> list[Event]:
        """What is not handed over yet; from now on it is."""
        events, self._events = self._events, []
        return events

    def flush(self) -> None:
        """Hand over what there is."""
        self._timer = None
        if events := self.take():
            self._send(events)
