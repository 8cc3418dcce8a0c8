"""A run's events in one place: the hub, what is worked out of it, its file, and where its traces go."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from deskroll.events import EventSink
from deskroll.rollout.config import Resources
from deskroll.rollout.events.file import EventFile
from deskroll.rollout.events.hub import EventHub
from deskroll.rollout.events.state import RunState
from deskroll.store import Storage

__all__ = ["EventHub", "RunState", "open_hub"]


@asynccontextmanager
async def open_hub(
    resources: Resources, storage: Storage, hide: Callable[[str], str], sink: EventSink | None = None
) -> AsyncIterator[EventHub]:
    """The hub of one start of a run, with its file, and its traces where they are wanted; `sink` hears all, too."""
    settings = resources.events
    most = int(settings.file_mb * 1e6) if settings.enabled else 0
    file = EventFile(storage, most) if most else None
    async with EventHub(hide, file, sink=sink, enabled=settings.enabled) as hub:
        if not resources.telemetry.otlp:
            yield hub
            return
        from deskroll.rollout.events.telemetry import Telemetry  # noqa: PLC0415  (its SDK is an extra)

        async with Telemetry(hub, resources.telemetry.otlp):
            yield hub
