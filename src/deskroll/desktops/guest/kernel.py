"""What the kernel says of the desktop's processes."""

from __future__ import annotations

import os
from pathlib import Path


def state(pid: int) -> str:
    """One letter, as in `ps`; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""


def anybody_runnable() -> bool:
    """Whether a process of this desktop other than the guest wants the CPU right now."""
    own = os.getpid()
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return any(state(pid) == "R" for pid in pids if pid != own)


def nobody_runnable() -> bool:
    """For a desktop that shares the host's processes: whose they are cannot be told quickly."""
    return False
