"""DesktopJournal: passes events on, and writes what desktops do to the run's journal."""

from __future__ import annotations

from deskroll.store import RunStore
from deskroll.store.journal import DesktopChanged
from deskroll.types import Event, EventSink


class DesktopJournal:
    """Passes events on, and writes what desktops do to the run's journal."""

    def __init__(self, sink: EventSink) -> None:
        self.store: RunStore | None = None
        self._sink = sink
        self._since: dict[str, float] = {}

    def emit(self, event: Event) -> None:
        """Pass one event on; a change of a desktop's state is journalled, too."""
        if event.kind == "desktop.state" and self.store is not None and not self.store.failed.done():
            data = event.data
            before = self._since.get(event.subject, event.at)
            self._since[event.subject] = event.at
            if data["state"] == "gone":
                del self._since[event.subject]
            self.store.write(
                DesktopChanged(
                    desktop=event.subject,
                    state=data["state"],
                    at=event.at,
                    lease=data.get("lease", ""),
                    holder=data.get("group") or data.get("client", ""),
                    seconds=round(event.at - before, 3),
                )
            )
        self._sink.emit(event)
