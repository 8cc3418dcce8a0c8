"""Limits on time: one whose passing is a failure of a class, and the clock of an episode's turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager

from deskroll.errors import DeskrollError
from deskroll.models.base import episode_clock


@asynccontextmanager
async def within(seconds: float | None, error: type[DeskrollError], what: str) -> AsyncIterator[None]:
    """End the block after that long, with an error that says what took too long."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise error(f"{what} did not end within {seconds:g} s") from None


Waiting = Callable[[], AbstractContextManager[None]]


class TurnClock:
    """The time of an episode's turns. Waiting for a model slot takes none of it, nor do tries that failed."""

    def __init__(self, limit: asyncio.Timeout, waiting: Waiting) -> None:
        self._limit = limit
        self._waiting = waiting

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens in this block takes no time."""
        with self._waiting(), self._stopped():
            yield

    @contextmanager
    def _stopped(self) -> Iterator[None]:
        end = self._limit.when()
        if end is None:
            yield
            return
        left = end - _now()
        self._limit.reschedule(None)
        try:
            yield
        finally:
            if not self._limit.expired():
                self._limit.reschedule(_now() + left)

    def credit(self, seconds: float) -> None:
        """So much of what has passed does not count."""
        end = self._limit.when()
        if end is not None and not self._limit.expired():
            self._limit.reschedule(end + seconds)


@asynccontextmanager
async def turns_within(seconds: float | None, waiting: Waiting) -> AsyncIterator[None]:
    """The block, on an episode's clock, which holds `waiting` while it stands still; `TimeoutError` when it is over."""
    async with asyncio.timeout(seconds) as limit:
        token = episode_clock.set(TurnClock(limit, waiting))
        try:
            yield
        finally:
            episode_clock.reset(token)


def _now() -> float:
    return asyncio.get_running_loop().time()
