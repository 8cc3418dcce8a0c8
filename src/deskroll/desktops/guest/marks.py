"""The processes of a desktop that has no namespace of its own: known by a mark in their environment."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

MARK = "DESKROLL_DESKTOP"


def end_marked(desktop_id: str) -> set[int]:
    """Kill every process but this one that carries the desktop's mark; returns their pids."""
    mark = f"{MARK}={desktop_id}".encode()
    found = {pid for pid in _all_pids() if mark in _environment(pid)}
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def end_all_marked(desktop_id: str) -> None:
    """Kill every such process until there is none: one that is being killed may have made another."""
    while end_marked(desktop_id):
        time.sleep(0.01)


def _all_pids() -> list[int]:
    own = os.getpid()
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and int(entry.name) != own]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
