"""BusyMeter: how much of a core the event loop of this process wanted, since it was asked last."""

from __future__ import annotations

import os
import time
from pathlib import Path

_ACCOUNT = Path("/proc/self/schedstat")
"""Of the thread that the event loop runs in: nanoseconds on a core, nanoseconds in line for one, turns."""


class BusyMeter:
    """Made in the process that it measures."""

    def __init__(self) -> None:
        self._before = _wanted_s()
        self._at = time.monotonic()

    def read(self) -> float | None:
        """Of a core, what was used and waited for; None where that is not all: there are child processes, too."""
        before, self._before = self._before, _wanted_s()
        at, self._at = self._at, time.monotonic()
        if before is None or self._before is None or self._at <= at or _has_children():
            return None
        return (self._before - before) / (self._at - at)


def _wanted_s() -> float | None:
    try:
        on_core, in_line, _ = map(int, _ACCOUNT.read_text().split())
    except (OSError, ValueError):
        return None
    return (on_core + in_line) / 1e9


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # takes nothing away from whoever waits for it
    except ChildProcessError:
        return False
    return True
