"""DesktopJournal: writes what desktops do to the run's journal, from the run's events."""

from __future__ import annotations

from deskroll.events import DesktopState
from deskroll.store import RunStore
from deskroll.store.journal import DesktopChanged


class DesktopJournal:
    """Of one start of a run."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._since: dict[str, float] = {}

    def hear(self, event: DesktopState) -> None:
        """Journal a change of a desktop's state."""
        if self._store.failed.done():
            return
        before = self._since.get(event.desktop, event.at)
        self._since[event.desktop] = event.at
        if event.state == "gone":
            del self._since[event.desktop]
        self._store.write(
            DesktopChanged(
                desktop=event.desktop,
                state=event.state,
                at=event.at,
                lease=event.lease,
                holder=event.group or event.client,
                seconds=round(event.at - before, 3),
            )
        )
