"""SilenceWatch: tells when a model server has answered nobody for a while though somebody waits, and when it does.

Guarantee: it goes by running time, and costs a request nothing but the first of those that are open together.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from deskroll.clocks import running_time
from deskroll.events import EndpointAnswering, EndpointSilent, EventSink
from deskroll.models.base import EndpointLoad

_SOON_S = 0.01


class SilenceWatch:
    """Of one endpoint, which is told of every request that is opened and every answer."""

    def __init__(self, load: Callable[[], EndpointLoad], sink: EventSink, after: float) -> None:
        self._load = load
        self._sink = sink
        self._after = after
        self._timer: asyncio.TimerHandle | None = None
        self._since: float | None = None
        """Since when it is silent, by running time; None: it is not."""

    def ask(self) -> None:
        """A request is being opened."""
        if self._timer is None and self._since is None:
            self._timer = asyncio.get_running_loop().call_later(self._after, self._look)

    def answer(self) -> None:
        """A request was answered."""
        if self._since is not None:
            load, silent = self._load(), running_time() - self._since
            self._since = None
            self._sink.emit(EndpointAnswering(endpoint=load.url, worker=os.getpid(), silent_s=silent))
            self.ask()  # others may still wait

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        load = self._load()
        silent = load.silent_s
        if silent >= self._after:
            self._since = running_time() - silent
            self._sink.emit(
                EndpointSilent(endpoint=load.url, worker=os.getpid(), silent_s=silent, requests=load.in_flight)
            )
        elif load.in_flight:
            left = max(_SOON_S, self._after - silent)
            self._timer = asyncio.get_running_loop().call_later(left, self._look)
