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


def tasks_named(name: str) -> list[asyncio.Task[object]]:
    """The tasks of this loop with that name, which is how `host/supervise.py` shows background work."""
    return [task for task in asyncio.all_tasks() if task.get_name() == name and not task.done()]


async def kill_task(name: str) -> None:
    """Cancel background work from outside, as soon as there is a task of that name."""

    async def found() -> list[asyncio.Task[object]]:
        return tasks_named(name)

    tasks = await eventually(found, f"there is {name}")
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
