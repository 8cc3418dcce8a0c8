"""Census: hears a runtime's events and counts what is in flight at its desktops: which groups hold how many.

A desktop is held from its lease until it is recycled, as the pool tells it; whose group holds it, the lease says.
"""

from __future__ import annotations

from collections import Counter

from deskroll.desktops.pool.slot import State
from deskroll.events import DesktopState, Event


class Census:
    """An `EventSink`; `forget` begins the count anew."""

    def __init__(self) -> None:
        self._held: dict[str, str] = {}
        """By desktop, the group that holds it."""
        self.groups = self.desktops = 0
        """The most at once."""
        self.beside = False
        """Whether groups of several phases ever held desktops at once."""
        self.leases: Counter[str] = Counter()
        """By phase."""

    @property
    def now(self) -> tuple[int, int]:
        """Groups and desktops at this moment."""
        return len(set(self._held.values())), len(self._held)

    def forget(self) -> None:
        """Count from now on."""
        self.groups, self.desktops = self.now

    def emit(self, event: Event) -> None:
        if not isinstance(event, DesktopState):
            return
        if event.state != State.LEASED:
            self._held.pop(event.desktop, None)
            return
        self._held[event.desktop] = event.group
        self.leases[event.group.split("/")[0]] += 1
        groups, desktops = self.now
        self.groups, self.desktops = max(self.groups, groups), max(self.desktops, desktops)
        self.beside = self.beside or len({each.split("/")[0] for each in self._held.values()}) > 1
