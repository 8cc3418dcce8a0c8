"""Backend: whoever runs attempts. The engine decides what runs and when; a backend only carries it out.

Used with `async with`. What every one guarantees: each `run` ends, with the attempt's `Episode`, with None where the
attempt was given back before it began, with `WorkerLost` when its process died, with `ConfigError` where what its order
names cannot be used, or with a `StoreError`; after the block nothing that it started is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Protocol

from deskroll.errors import DeskrollError
from deskroll.rollout.orders import AttemptName, Order, Vitals
from deskroll.rollout.spec import Definition
from deskroll.types import Episode, EpisodeKey, Record


class WorkerVitals(Record, frozen=True):
    """One worker, as status and watchdog see it."""

    name: str
    pid: int
    vitals: Vitals
    """What it said last."""
    load: int = 0
    """How many attempts it was ordered and has not ended: what is so now, whatever it said last."""
    rss_mb: float = 0.0
    silent_s: float = 0.0
    """How long nothing was heard of it."""
    isolated: bool = False


class Backend(Protocol):
    """Runs attempts."""

    def define(self, definition: Definition) -> None:
        """Say what orders that name this digest have in common: before the first of them."""

    async def run(self, order: Order) -> Episode | None:
        """Run one attempt to its end; None where it was given back before that."""

    def stop(self, key: EpisodeKey, attempt: int, error: DeskrollError | None, visit: int | None = None) -> bool:
        """End an attempt now: as a failure of the error's class, or because it is not wanted any more.

        `visit`: only if it still is in that stage (`Activity.visit`). Returns whether somebody runs it.
        """

    def give_back(self, attempts: Collection[AttemptName]) -> asyncio.Future[int]:
        """Have those of these attempts given back that have not begun their set-up; how many come to their end."""

    def dump(self, key: EpisodeKey, attempt: int, why: str) -> None:
        """Write down where an attempt stands: its stack and its screen, in its folder."""

    def workers(self) -> list[WorkerVitals]:
        """What every worker does."""
