"""What the kernel says of the desktop's processes."""

from __future__ import annotations

import os
from collections.abc import Sequence


def state(pid: int) -> str:
    """One letter, as in `ps`; empty when the process is gone."""
    return _state(f"/proc/{pid}")


def anybody_runnable() -> bool:
    """Whether a process of this desktop other than the guest has work to do right now."""
    own = os.getpid()
    return at_work([pid for pid in _numbers("/proc") if pid != own])


def at_work(pids: Sequence[int]) -> bool:
    """Whether a thread of these processes wants the CPU or waits for a disk.

    They hand work to one another, so a look at one after the other may find each of them asleep: nobody may have run
    between the first look and the last.
    """
    threads = [f"/proc/{pid}/task/{thread}" for pid in pids for thread in _numbers(f"/proc/{pid}/task")]
    before = [_read(f"{thread}/schedstat") for thread in threads]
    if any(_state(thread) in ("R", "D") for thread in threads):
        return True
    return before != [_read(f"{thread}/schedstat") for thread in threads]


def _numbers(folder: str) -> list[int]:
    try:
        with os.scandir(folder) as entries:
            return [int(entry.name) for entry in entries if entry.name.isdigit()]
    except OSError:  # it has ended
        return []


def _state(folder: str) -> str:
    return _read(f"{folder}/stat").rpartition(") ")[2][:1]


def _read(file: str) -> str:
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 4096).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)
