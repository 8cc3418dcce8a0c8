"""BusyMeter: what the attempts of this process take of what they share in it, since it was asked last.

They share a core, for the event loop runs in one thread, and others that compute take the interpreter from it; and the
thread in which what they wrote is made durable.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from deskroll.store import Storage
from deskroll.store.local import LocalStorage

_ACCOUNT = Path("/proc/self/schedstat")
"""Of the thread that the event loop runs in: nanoseconds on a core, nanoseconds in line for one, turns."""


class BusyMeter:
    """Made and read in the thread of the event loop, in the process that it measures; its attempts are stored there."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._before = self._look()

    def read(self) -> float | None:
        """The larger of both shares; None where that is not all: uploads, or child processes, take time as well."""
        before, self._before = self._before, self._look()
        if before is None or self._before is None or _has_children():
            return None
        at, wanted, writing = (now - then for now, then in zip(self._before, before, strict=True))
        return max(wanted, writing) / at if at > 0 else None  # `wanted` may be below 0: what writing took is told late

    def _look(self) -> tuple[float, float, float] | None:
        """The time, that of cores which was used or waited for, and that of the thread which writes, in seconds."""
        if not isinstance(self._storage, LocalStorage):
            return None
        try:
            on_core, in_line, _ = map(int, _ACCOUNT.read_text().split())
        except (OSError, ValueError):
            return None
        commits = self._storage.commits
        in_threads = time.process_time() - time.thread_time() - commits.cpu_s
        return time.monotonic(), (on_core + in_line) / 1e9 + in_threads, commits.work_s


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # takes nothing away from whoever waits for it
    except ChildProcessError:
        return False
    return True
