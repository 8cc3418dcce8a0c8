"""Kills for want of memory in a desktop's control group, and whose want it was: of its own limit, or of the machine.

The kernel counts such kills in the victim's group, whoever had no memory left. What tells them apart is how often the
group itself found none below its own limit, which comes before every kill for that reason. Version 2 of control groups
counts it (`oom` in memory.events, which limits above do not touch). Version 1 only tells those who listen, and tells
them also when it was a limit above, so that the group above is listened to as well. (`memory.failcnt` does not serve:
a cache of files that fills the group raises it, and nobody is killed.)

Guarantees: only where every recent kill has such an event of the group's own is the cause said to lie inside.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from pathlib import Path
from typing import NamedTuple

from deskroll.errors import DeathCause


class _Counts(NamedTuple):
    """Since the group was made, or listened to."""

    kills: int = 0
    full: int = 0
    """How often there was no memory below its own limit, or, in version 1, below one above."""
    full_above: int = 0


class MemoryWatch:
    """What was killed in one group of late. Use `close`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._listeners: list[_Listener] = []
        self._knows_why = (folder / "memory.events").exists()
        if not self._knows_why:
            with contextlib.suppress(OSError):  # a kernel without: then nobody can say whose want it was
                self._listeners = _listen(folder, folder.parent)
                self._knows_why = True
        self._looks = deque([self._count()] * 3, maxlen=3)

    def look(self) -> None:
        """Remember how things are: what was so before the last two looks is not recent any more."""
        self._looks.append(self._count())

    def cause_of_kills(self) -> DeathCause | None:
        """Where the cause of the recent kills lies; None: there were none."""
        now = self._count()
        if now.kills <= self._looks[1].kills:
            return None
        if not self._knows_why:
            return DeathCause.UNKNOWN
        # From one look earlier: the want comes before its kill, and a look may fall between the two. The kills are
        # counted from there, too: a want whose own kill is over explains no other.
        since = self._looks[0]
        kills = now.kills - since.kills
        above = now.full_above - since.full_above
        own = now.full - since.full - above
        if own <= 0:
            return DeathCause.OUTSIDE
        return DeathCause.INSIDE if own >= kills and not above else DeathCause.UNKNOWN

    def close(self) -> None:
        """Listen no more."""
        for listener in self._listeners:
            listener.close()

    def _count(self) -> _Counts:
        """The kills first, and what is above last: an event in between never makes a kill the group's own."""
        try:
            if not self._listeners:
                events = _read_counts(self._folder / ("memory.events" if self._knows_why else "memory.oom_control"))
                return _Counts(events.get("oom_kill", 0), events.get("oom", 0))
            kills = _read_counts(self._folder / "memory.oom_control").get("oom_kill", 0)
            return _Counts(kills, *(each.count() for each in self._listeners))
        except (OSError, ValueError):
            return _Counts()  # the group is gone, or there was none


class _Listener:
    """Hears whenever a group of version 1, or one above it, has no memory left."""

    def __init__(self, folder: Path) -> None:
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._heard = 0
        try:
            control = os.open(folder / "memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
            try:
                (folder / "cgroup.event_control").write_text(f"{self._event} {control}")
            finally:
                os.close(control)
        except OSError:
            os.close(self._event)
            raise

    def count(self) -> int:
        """How often it has heard of it."""
        with contextlib.suppress(BlockingIOError):
            self._heard += os.eventfd_read(self._event)
        return self._heard

    def close(self) -> None:
        """Listen no more."""
        os.close(self._event)


def _listen(*folders: Path) -> list[_Listener]:
    """To all of these groups, or to none."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(contextlib.closing(_Listener(folder))) for folder in folders]
        stack.pop_all()
        return listeners


def _read_counts(file: Path) -> dict[str, int]:
    return {name: int(number) for name, number in (line.split() for line in file.read_text().splitlines())}
