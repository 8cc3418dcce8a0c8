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
    pids = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()} - {os.getpid()}
    return {pid for pid in pids if _is_marked(pid, server_id) and process_start(pid)}


async def end_family(server_id: str) -> set[int]:
    """Kill all of it, and wait until it is gone and its memory free; returns what processes there were.

    Looked for again until there is none, since one that is being killed may have made another. One that is ending has
    no environment any more while its memory is taken back, so each that was seen is waited for by its number.
    """
    seen: dict[int, int] = {}
    left: set[int] = set()
    try:
        async with time_limit(_GONE_S):
            while True:
                found = await asyncio.to_thread(family, server_id)
                seen |= {pid: process_start(pid) for pid in found if pid not in seen}
                left = {pid for pid, start in seen.items() if start and process_start(pid) == start}
                if not found and not left:
                    return set(seen)
                for pid in found:
                    _kill(pid, server_id)
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        names = ", ".join(map(str, sorted(left)))
        raise ModelError(f"model server {server_id}: processes {names} were killed and are still there") from None


def _kill(pid: int, server_id: str) -> None:
    """Kill a process of the family, and never one that has its number by now."""
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            if _is_marked(pid, server_id):
                signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            os.close(process)


def _is_marked(pid: int, server_id: str) -> bool:
    try:
        return f"{MARK}={server_id}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
