"""Backend: whoever runs attempts. The engine decides what runs and when; a backend only carries it out.

Used with `async with`. What every one guarantees: each `run` ends, with the attempt's `Episode`, with None where the
attempt was given back before it began, with `WorkerLost` when its process died, with `ConfigError` where what its order
names cannot be used, or with a `StoreError`; after the block nothing that it started is left.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from deskroll.errors import DeskrollError
from deskroll.events import EventSink
from deskroll.models.plugin import ModelPlugin
from deskroll.plugins import Plugin, load_plugin
from deskroll.rollout.config import WorkerSettings
from deskroll.rollout.context import Leases
from deskroll.rollout.orders import AttemptName, Order, Vitals, WorkerSetup
from deskroll.rollout.spec import Definition
from deskroll.types import Episode, EpisodeKey, Record


class WorkerStatus(Record, frozen=True, omit_defaults=False):
    """One worker."""

    name: str
    pid: int
    running: int = 0
    """How many attempts it was ordered and has not ended: what is so now, whatever it said last."""
    rss_mb: float = 0.0
    silent_s: float = 0.0
    """How long nothing was heard of it."""
    isolated: bool = False
    vitals: Vitals = Vitals()
    """What it said last."""


@dataclass(frozen=True)
class BackendContext:
    """What a backend may use, besides what its episodes have in common."""

    leases: Leases | None = None
    """The pool, where it is in this process."""
    keep: tuple[int, ...] = ()
    """Descriptors that whoever runs episodes keeps open: the run is not free before they are closed."""
    sink: EventSink | None = None
    workers: WorkerSettings = field(default_factory=WorkerSettings)
    """How processes that run episodes are kept."""
    model: ModelPlugin | None = None
    """An object that is asked by episodes whose model is of its kind, where they run in this process."""


class Backend(Plugin):
    """Runs attempts."""

    has_workers: ClassVar[bool] = True
    """Whether episodes run in other processes, each with clients of its own."""

    @classmethod
    @abstractmethod
    def for_run(cls, setup: WorkerSetup, settings: Any, context: BackendContext) -> Self:
        """Make the one of a run, with the options that people set (`backend_options`)."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """End all that it started."""

    @property
    def lost(self) -> asyncio.Future[DeskrollError] | None:
        """Done once it can run nothing any more, with why; None: it cannot know."""
        return None

    @abstractmethod
    def define(self, definition: Definition) -> None:
        """Say what orders that name this digest have in common: before the first of them."""

    def forget(self, digest: str) -> None:
        """No order will name this digest any more, unless it is defined again: let go of what is kept for it."""

    @abstractmethod
    async def run(self, order: Order) -> Episode | None:
        """Run one attempt to its end; None where it was given back before that."""

    @abstractmethod
    def stop(self, key: EpisodeKey, attempt: int, error: DeskrollError | None, visit: int | None = None) -> bool:
        """End an attempt now: as a failure of the error's class, or because it is not wanted any more.

        `visit`: only if it still is in that stage (`Activity.visit`). Returns whether somebody runs it.
        """

    @abstractmethod
    def give_back(self, attempts: Collection[AttemptName]) -> asyncio.Future[int]:
        """Have those of these attempts given back that have not begun their set-up; how many come to their end."""

    @abstractmethod
    def dump(self, key: EpisodeKey, attempt: int, why: str) -> None:
        """Write down where an attempt stands: its stack and its screen, in its folder."""

    @abstractmethod
    def workers(self) -> list[WorkerStatus]:
        """What every worker does."""


def backend_kind(name: str) -> type[Backend]:
    """The backend of that name."""
    return load_plugin("backend", name, Backend)
