"""What crosses from the coordinator to whoever runs episodes, and back: frozen records, names instead of code."""

from __future__ import annotations

from deskroll.models.base import EndpointLoad
from deskroll.store.names import name_of
from deskroll.types import EpisodeKey, Record, Sampling, Stage, Task

AttemptName = tuple[EpisodeKey, int]
"""An attempt, by its episode and its number."""


class WorkerSetup(Record, frozen=True):
    """What a process that runs episodes has in common for all of them."""

    storage: str
    """Where the run's journal is, and attempts go."""
    pool: str = ""
    """Where the pool answers, once an episode needs a desktop."""
    plan: str = ""
    """Under which name that pool is told how many desktops the run will lease; empty: the pool is the run's own."""
    pool_wait: float = 0.0
    """How long an attempt waits for a pool that serves nobody."""
    notice_after: float = 15.0
    """A model server that has answered nobody for so long is silent."""
    events: bool = True
    """Whether workers tell what happens."""


class Order(Record, frozen=True):
    """Run this, once."""

    key: EpisodeKey
    attempt: int
    task: Task
    spec: str = ""
    """The digest of what its job's episodes have in common."""
    priority: int = 0
    waited_s: float = 0.0
    """How long it waited for its permits."""
    isolated: bool = False
    """Whether it must have a process of its own: its last one died."""
    sampling: Sampling | None = None
    """How its model is sampled, over what the spec's settings say; None: as they say."""

    @property
    def name(self) -> str:
        """How logs and people name it."""
        return name_of(self.key, self.attempt)


class Activity(Record, frozen=True):
    """What one attempt does at this moment."""

    key: EpisodeKey
    attempt: int
    stage: Stage
    since: float
    """Seconds since the epoch; for people."""
    seconds: float = 0.0
    """How long it has been at it, of the time in which its process ran, when this was said."""
    visit: int = 0
    """Which of its stages this is, counted."""
    desktop: str = ""
    turn: int = 0


class Vitals(Record, frozen=True):
    """What a worker says of itself, about twice a second."""

    ran_s: float = 0.0
    """Its running time (`clocks.running_time`): what the stages of its episodes have taken counts by that."""
    running: int = 0
    endpoints: tuple[EndpointLoad, ...] = ()
