"""Family: all processes of one server, found by the mark in their environment, whoever their parent is by now.

vLLM's EngineCore and workers outlive an API process that was killed, and hold its memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from deskroll.clocks import time_limit
from deskroll.errors import ModelError
from deskroll.host.owner import process_start
from deskroll.models.vllm.command import MARK

_LOOK_S = 0.02
_GONE_S = 30.0
"""The kernel may need that long to take back the memory of what was killed."""


def family(server_id: str) -> set[int]:
    """The processes that carry the mark of a server and are alive; never this one."""
    mark = f"{MARK}={server_id}".encode()
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {pid for pid in pids if pid != os.getpid() and mark in _environment(pid) and process_start(pid)}


async def end_family(server_id: str) -> set[int]:
    """Kill all of it, until there is none: one that is being killed may have made another; returns what there was."""
    seen: set[int] = set()
    try:
        async with time_limit(_GONE_S):
            while found := await asyncio.to_thread(family, server_id):
                seen |= found
                for pid in found:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        left = ", ".join(map(str, sorted(family(server_id))))
        raise ModelError(f"model server {server_id}: processes {left} were killed and are still there") from None
    return seen


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
