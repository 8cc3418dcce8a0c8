"""Background: what goes on beside a run for as long as it lasts: the watchdog, the look at the pool, the run's clock.

Guarantees: a part that dies is told at once, by its name and with the reason, to whoever waits for the run; none of
them outlives the block.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager

from deskroll.errors import BackgroundLost, plain


@asynccontextmanager
async def in_background(
    parts: Mapping[str, Coroutine[object, object, None]],
) -> AsyncIterator[asyncio.Future[BackgroundLost]]:
    """Run each part beside the block, and end it with the block; what comes back is done once one of them has died."""
    died: asyncio.Future[BackgroundLost] = asyncio.get_running_loop().create_future()
    tasks = [asyncio.create_task(part, name=name) for name, part in parts.items()]

    def look(task: asyncio.Task[None]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None and not died.done():
            died.set_result(lost_part(task.get_name(), error))

    for task in tasks:
        task.add_done_callback(look)
    try:
        yield died
    finally:
        for task in tasks:
            task.remove_done_callback(look)  # from here on their end is wanted
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def lost_part(name: str, error: BaseException) -> BackgroundLost:
    """The error that a part of a run died, told in a line."""
    why = f"{type(error).__name__}: {plain(str(error))}" if str(error) else type(error).__name__
    made = BackgroundLost(f"{name} died ({why}), and the run stops here, since it cannot go on without it: resume it")
    made.unforeseen = error
    made.__cause__ = error
    return made
