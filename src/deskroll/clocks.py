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
from types import TracebackType
from typing import Self

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
    now, due = time.monotonic(), ticker.due
    return (now if now < due else due) - ticker.lost


class _Ticker:
    """Looks at the time again and again; where a look comes late, the loop did not run meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = weakref.ref(loop)
        self.lost = 0.0
        """For how long the loop did not run."""
        self.due = 0.0
        """When the next look is late: until then, the loop runs."""
        self._look()

    def _look(self) -> None:
        now = time.monotonic()
        if self.due:
            self.lost += max(0.0, now - self.due)
        self.due = now + _TICK_S + _LATE_S
        if (loop := self.loop()) is not None:
            loop.call_later(_TICK_S, self._look)


_tickers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Ticker] = weakref.WeakKeyDictionary()
_latest: _Ticker | None = None
"""Of the loop that was asked for last."""


class time_limit:  # noqa: N801  (it is used like a function)
    """End the block with `TimeoutError` once it has had so many seconds of running time; None: never.

    `async with time_limit(5) as limit`; the end may be moved while the block runs. What a cancellation means is decided
    as in `asyncio.timeout`, whose clock would be another one.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._expired = False
        self._end: float | None = None
        self._timer: asyncio.Handle | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        if (task := asyncio.current_task(self._loop)) is None:
            raise RuntimeError("a limit on time needs a task that it can end")
        self._task, self._cancelling = task, task.cancelling()
        if self._seconds is not None:
            self.allow(self._seconds)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    @property
    def left(self) -> float | None:
        """Seconds that are left; None: there is no end."""
        return None if self._end is None else self._end - running_time()

    def expired(self) -> bool:
        """Whether the block was ended."""
        return self._expired

    def allow(self, seconds: float | None) -> None:
        """So many seconds from now; None: as long as it takes. Too late once it has expired."""
        self._release()
        if self._expired:
            return
        self._end = None
        if seconds is not None:
            self._end = running_time() + seconds
            self._set_timer(seconds)

    def extend(self, seconds: float) -> None:
        """So many seconds more than are left. Its timer stays: one that comes too early is set again."""
        if self._end is not None:
            self._end += seconds

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, seconds: float) -> None:
        self._timer = self._loop.call_later(max(0.0, seconds), self._look)

    def _look(self) -> None:
        if (left := self.left) is not None and left > _NOW_S:
            self._set_timer(left)
        else:
            self._timer = self._loop.call_soon(self._expire)  # whatever has come by now is heard first

    def _expire(self) -> None:
        self._timer = None
        self._expired = True
        self._task.cancel()
