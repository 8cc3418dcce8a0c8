"""Waiting on conditions, never on the clock."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_S = 90.0


def wait_until(condition: Callable[[], T], what: str, timeout: float = PATIENCE_S) -> T:
    """Poll `condition` until it is true and return its value."""
    deadline = time.monotonic() + timeout
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: still not so after {timeout:g} s (last value: {value!r})")
        time.sleep(0.02)


async def eventually(condition: Callable[[], Awaitable[T]], what: str, timeout: float = PATIENCE_S) -> T:
    """Poll the async `condition` until it is true and return its value."""
    deadline = time.monotonic() + timeout
    while True:
        if value := await condition():
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: still not so after {timeout:g} s (last value: {value!r})")
        await asyncio.sleep(0.02)
