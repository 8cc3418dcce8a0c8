"""What the processes of killed runs left on this machine: control groups, sockets, folders of sockets.

Guarantees: each run removes them when it starts, and again when it ends, so that nothing is left of workers that were
killed under way either. What belongs to a live process is never touched. Desktops have owners of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from deskroll.host.control_group import sweep_groups
from deskroll.host.runtime_folder import sweep_folders
from deskroll.rollout.control import sweep_sockets


@asynccontextmanager
async def leaving_nothing() -> AsyncIterator[None]:
    """Sweep before and after the block."""
    await asyncio.to_thread(_sweep)
    try:
        yield
    finally:
        await asyncio.to_thread(_sweep)


def _sweep() -> None:
    sweep_folders()
    sweep_groups()
    sweep_sockets()
