"""Waiting: tells whoever asks a pool that its servers are still starting, and why the last one did not come up.

Guarantee: it says nothing of a pool that has a server, nor of a router without a pool, and it ends with the block.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from deskroll.errors import DeskrollError
from deskroll.host.listen import Listen

_PATIENCE_S = 3.0


@asynccontextmanager
async def tell_waiting(pool: str, tell: Callable[[str], None], every: float = _PATIENCE_S) -> AsyncIterator[None]:
    """For the length of the block; `pool`: its address, empty where there is none."""
    if not pool:
        yield
        return
    task = asyncio.create_task(_until_up(pool, tell, every), name=f"the wait for {pool}")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()


async def _until_up(pool: str, tell: Callable[[str], None], every: float) -> None:
    from deskroll.models.vllm.service import ask_status  # noqa: PLC0415  (all of a pool, for those who ask one alone)

    told = ""
    while True:
        await asyncio.sleep(every)  # a pool tells nobody how its servers do
        try:
            status = await ask_status(pool)
        except DeskrollError:  # nobody's pool, or one that is gone: whoever asks it is told that
            return
        if status.address != str(Listen.parse(pool)) or not (shown := status.waits_for):
            return
        if shown != told:
            told = shown
            tell(shown)
