"""Limits on time: one whose passing is a failure of a class, and the clock of an episode's turns.

Guarantee: neither counts time in which this process did not run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from types import TracebackType

from deskroll.clocks import running_time, time_limit
from deskroll.errors import DeskrollError
from deskroll.models.base import episode_clock


class within(time_limit):  # noqa: N801  (as `time_limit`)
    """End the block after that long, with an error that says what took too long."""

    def __init__(self, seconds: float | None, error: type[DeskrollError], what: str) -> None:
        super().__init__(seconds)
        self._error = error
        self._what = what

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        except TimeoutError as over:
            raise self._too_long(over) from None
        if self.expired() and isinstance(error, TimeoutError):  # what the block made of it
            raise self._too_long(error) from None

    def _too_long(self, over: TimeoutError) -> DeskrollError:
        made = self._error(f"{self._what} did not end within {self._seconds:g} s")
        made.unforeseen = over.__cause__  # the cancellation, which knows what was waited for
        return made


Waiting = Callable[[], AbstractContextManager[None]]


class TurnClock:
    """The time of an episode's turns. Waiting for a model slot takes none of it, nor do tries that failed."""

    def __init__(self, limit: time_limit, waiting: Waiting) -> None:
        self._limit = limit
        self._waiting = waiting
        self.unanswered_s = 0.0
        """How long requests were open that were given up, since one was answered last."""

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens in this block takes no time."""
        with self._waiting(), self._stopped():
            yield

    @contextmanager
    def _stopped(self) -> Iterator[None]:
        left = self._limit.left
        self._limit.allow(None)
        try:
            yield
        finally:
            self._limit.allow(left)

    def asking(self) -> AbstractContextManager[None]:
        """In this block a request is open; given up by the time that is over, or by the agent, it was not answered."""
        return _Asking(self)

    def credit(self, seconds: float) -> None:
        """So much of the running time that has passed does not count."""
        self._limit.extend(seconds)


class _Asking:
    __slots__ = ("_begun", "_clock")

    def __init__(self, clock: TurnClock) -> None:
        self._clock = clock

    def __enter__(self) -> None:
        self._begun = running_time()

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is None:
            self._clock.unanswered_s = 0.0
        elif issubclass(kind, asyncio.CancelledError):
            self._clock.unanswered_s += running_time() - self._begun


@asynccontextmanager
async def turns_within(seconds: float | None, waiting: Waiting) -> AsyncIterator[TurnClock]:
    """The block, on an episode's clock, which holds `waiting` while it stands still; `TimeoutError` when it is over."""
    async with time_limit(seconds) as limited:
        clock = TurnClock(limited, waiting)
        token = episode_clock.set(clock)
        try:
            yield clock
        finally:
            episode_clock.reset(token)
