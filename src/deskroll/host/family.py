"""Family: all processes that carry a mark in their environment, whoever their parent is by now.

A program that is killed may leave others that it started, and these hold memory. What is started with a variable of its
own, `NAME=value`, is found by that, with all that comes of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from deskroll.clocks import time_limit
from deskroll.host.owner import process_start

_LOOK_S = 0.02
_GONE_S = 30.0
"""The kernel may need that long to take back the memory of what was killed."""


def find_marked(mark: str) -> set[int]:
    """The processes that carry a mark, `NAME=value`, and are alive; never this one."""
    pids = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()} - {os.getpid()}
    return {pid for pid in pids if _is_marked(pid, mark) and process_start(pid)}


async def end_marked(mark: str) -> set[int]:
    """Kill all of them, and wait until they are gone and their memory free; returns what processes there were.

    Looked for again until there is none, since one that is being killed may have made another. One that is ending has
    no environment any more while its memory is taken back, so each that was seen is waited for by its number.
    `TimeoutError`, with the numbers, where some are there still.
    """
    seen: dict[int, int] = {}
    left: set[int] = set()
    try:
        async with time_limit(_GONE_S):
            while True:
                found = await asyncio.to_thread(find_marked, mark)
                seen |= {pid: process_start(pid) for pid in found if pid not in seen}
                left = {pid for pid, start in seen.items() if start and process_start(pid) == start}
                if not found and not left:
                    return set(seen)
                for pid in found:
                    _kill(pid, mark)
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise TimeoutError(", ".join(map(str, sorted(left)))) from None


def _kill(pid: int, mark: str) -> None:
    """Kill a process of the family, and never one that has its number by now."""
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            if _is_marked(pid, mark):
                signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            os.close(process)


def _is_marked(pid: int, mark: str) -> bool:
    try:
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
