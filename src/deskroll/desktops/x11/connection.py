"""One connection to an X server, used from one thread of its own, every call with a deadline.

A call to a stopped X server never returns. So each call has a deadline; when it passes, the connection's socket is
shut down, which frees the thread, and the connection is broken for good: the display it led to cannot be trusted.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar

from Xlib.display import Display
from Xlib.error import ConnectionClosedError, DisplayError, XError

from deskroll.errors import DesktopLost

P = ParamSpec("P")
T = TypeVar("T")


class XConnection:
    """Runs functions of a `Display` on the connection's own thread, one at a time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="x11")
        self._display: Display | None = None
        self._broken = ""
        self.answered_at = float("-inf")
        """When the server answered last (monotonic seconds)."""
        self._turn = asyncio.Lock()

    async def open(self, timeout: float) -> None:
        """Connect; raises `DesktopLost` when the server does not answer in time."""
        self._display = await self._run(lambda: Display(self.name), timeout)

    async def call(
        self,
        timeout: float,
        function: Callable[Concatenate[Display, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run `function(display, ...)` on the connection's thread within `timeout` seconds."""
        display = self._display
        if display is None:
            raise DesktopLost(f"X display {self.name} is not connected")
        return await self._run(lambda: function(display, *args, **kwargs), timeout)

    async def _run(self, function: Callable[[], T], timeout: float) -> T:
        async with self._turn:  # the time that others take does not count
            return await self._run_now(function, timeout)

    async def _run_now(self, function: Callable[[], T], timeout: float) -> T:
        if self._broken:
            raise DesktopLost(self._broken)
        work = asyncio.get_running_loop().run_in_executor(self._thread, function)
        try:
            result = await asyncio.wait_for(asyncio.shield(work), timeout)
        except asyncio.CancelledError:
            # The thread is still at it; the next call must not be blamed for that.
            await asyncio.wait([work], timeout=timeout)
            if not work.done():
                self._break(f"X display {self.name} did not answer within {timeout:.1f} s")
            work.add_done_callback(_read_exception)
            raise
        except TimeoutError:
            work.add_done_callback(_read_exception)
            raise DesktopLost(self._break(f"X display {self.name} did not answer within {timeout:.1f} s")) from None
        except (ConnectionClosedError, DisplayError, OSError) as error:
            raise DesktopLost(self._break(f"X display {self.name} closed the connection: {error}")) from error
        except XError as error:
            # One request failed, e.g. for a window that has just gone; the connection is sound.
            raise XRequestError(f"X display {self.name} refused a request: {error}") from error
        self.answered_at = time.monotonic()
        return result

    def _break(self, reason: str) -> str:
        self._broken = self._broken or f"{reason}; this desktop must be replaced"
        self._shut_down()
        return self._broken

    def _shut_down(self) -> None:
        if self._display is not None:
            with contextlib.suppress(OSError):
                self._display.display.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Free the thread and the connection; later calls fail."""
        self._broken = self._broken or f"the connection to X display {self.name} was closed"
        self._shut_down()
        self._thread.shutdown(wait=False, cancel_futures=True)


class XRequestError(Exception):
    """The X server refused one request; most often its window is gone already."""


def _read_exception(work: asyncio.Future[T]) -> None:
    # The thread was freed by force; its error is known and reported already.
    if not work.cancelled():
        work.exception()
