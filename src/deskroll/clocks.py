"""Clocks: which one a decision goes by.

    wall      `time.time()`      what people read and records keep. It may jump, so nothing is decided by it where
                                 another clock can be had: only between hosts, and across a boot, there is none
    boot      `boot_time()`      how long something has held for others: leases, notes of owners. Goes on while the
                                 machine sleeps, and is the same in every process of one boot
    running   `running_time()`   how long this process has had: limits, silences, stalls. Stands still while its event
                                 loop does not run: the process is stopped, the machine sleeps, the loop is late

Guarantee of `time_limit`: a block is not ended for time in which its process could do nothing; what arrived meanwhile
is still heard.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_TICK_S = 0.25
_LATE_S = 0.05
"""Every timer is late by a little."""
_NOW_S = 0.001


def boot_time() -> float:
    """Seconds since this machine was started, those that it slept included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def running_time() -> float:
    """Seconds for which the running event loop has run; what they count from is no moment in particular."""
    global _latest  # noqa: PLW0603  (nearly every process has one loop, and asks this a dozen times a turn)
    loop, ticker = asyncio.get_running_loop(), _latest
    if ticker is None or ticker.loop() is not loop:
        ticker = _tickers.get(loop)
        if ticker is None:
            ticker = _tickers[loop] = _Ticker(loop)
        _latest = ticker
    return ticker.time()


class _Ticker:
    """Looks at the time again and again; where a look comes late, the loop did not run meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = weakref.ref(loop)
        self._lost = 0.0
        self._due = 0.0
        """When the next look is late."""
        self._look()

    def time(self) -> float:
        return min(time.monotonic(), self._due) - self._lost

    def _look(self) -> None:
        now = time.monotonic()
        if self._due:
            self._lost += max(0.0, now - self._due)
        self._due = now + _TICK_S + _LATE_S
        if (loop := self.loop()) is not None:
            loop.call_later(_TICK_S, self._look)


_tickers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Ticker] = weakref.WeakKeyDictionary()
_latest: _Ticker | None = None
"""Of the loop that was asked for last."""


class Limit:
    """When a block ends at the latest, by running time; it may be moved while the block runs."""

    def __init__(self, block: asyncio.Timeout) -> None:
        self._block = block
        self._end: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def left(self) -> float | None:
        """Seconds that are left; None: there is no end."""
        return None if self._end is None else self._end - running_time()

    def expired(self) -> bool:
        """Whether the block was ended."""
        return self._block.expired()

    def allow(self, seconds: float | None) -> None:
        """So many seconds from now; None: as long as it takes. Too late once it has expired."""
        self.release()
        if not self.expired():
            self._end = None if seconds is None else running_time() + seconds
            self._set_timer()

    def release(self) -> None:
        """The block is over: nothing ends it any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        if (left := self.left) is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, left), self._look)

    def _look(self) -> None:
        self._timer = None
        if self.left is not None and self.left > _NOW_S:
            self._set_timer()
        elif not self.expired():
            self._block.reschedule(asyncio.get_running_loop().time())


@asynccontextmanager
async def time_limit(seconds: float | None) -> AsyncIterator[Limit]:
    """End the block with `TimeoutError` once it has had so many seconds of running time; None: never."""
    async with asyncio.timeout(None) as block:
        limited = Limit(block)
        limited.allow(seconds)
        try:
            yield limited
        finally:
            limited.release()
