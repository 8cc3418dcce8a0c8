"""A lock on a file's name, between tasks of a process and between processes: one fetches, the others wait for it."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

_LOOK_S = 0.05


@asynccontextmanager
async def hold_lock(path: Path) -> AsyncIterator[None]:
    """Hold the lock for as long as the block lasts; the kernel frees it when its holder dies.

    The file stays: were it removed, two could hold locks on files of one name.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOOK_S)  # flock cannot be awaited, and a thread that waits cannot be cancelled
        yield
    finally:
        os.close(file)
