"""What crosses from the coordinator to whoever runs episodes, and back: frozen records, names instead of code."""

from __future__ import annotations

from typing import Any

import msgspec

from deskroll.models.base import EndpointLoad
from deskroll.store.names import name_of
from deskroll.types import EpisodeKey, Record, Stage, Task


class EpisodeLimits(Record, frozen=True):
    """How much one attempt may use up; times are in seconds."""

    max_turns: int = 50
    max_time: float | None = 3600.0
    """For the agent's turns: models and actions. Waiting for a desktop, set-up and scoring have limits of their own."""
    max_tokens: int | None = None
    """Prompt and completion together."""
    max_cost_usd: float | None = None
    setup_timeout: float = 600.0
    score_timeout: float = 600.0
    close_timeout: float = 60.0
    """For letting go of what the environment holds; what is cut off then changes nothing of the result."""


class RunSpec(Record, frozen=True):
    """What every episode of a run has in common."""

    env: str
    agent: str
    model: dict[str, Any]
    """The model's settings; its key travels beside this, never in it."""
    storage: str
    folder: str = ""
    """Where the file of tasks is."""
    judge: dict[str, Any] | None = None
    """The settings of the model that judges answers; None: the model itself."""
    env_options: dict[str, Any] = msgspec.field(default_factory=dict)
    agent_options: dict[str, Any] = msgspec.field(default_factory=dict)
    plug_ins: dict[str, str] = msgspec.field(default_factory=dict)
    """Parts that are named by a file, each with the digest of that file when the run began."""
    limits: EpisodeLimits = EpisodeLimits()
    evaluate: bool = True
    """Whether attempts are judged."""
    pool: str = ""
    """Where the pool answers; empty: no episode needs a desktop."""
    plan: str = ""
    """Under which name that pool is told how many desktops the run will lease; empty: the pool is the run's own."""
    pool_wait: float = 0.0
    """How long an attempt waits for a pool that serves nobody."""
    notice_after: float = 15.0
    """A model server that has answered nobody for so long is silent."""
    events: bool = True
    """Whether workers tell what happens."""


class Keys(Record, frozen=True):
    """The keys of a run's models. They travel beside the spec, never in it, and show themselves to nobody."""

    model: str = ""
    judge: str = ""

    def __repr__(self) -> str:
        return "Keys(...)"


class Order(Record, frozen=True):
    """Run this, once."""

    key: EpisodeKey
    attempt: int
    task: Task
    priority: int = 0
    waited_s: float = 0.0
    """How long it waited for its permits."""
    isolated: bool = False
    """Whether it must have a process of its own: its last one died."""

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
    """What a worker says of itself, about once a second."""

    ran_s: float = 0.0
    """Its running time (`clocks.running_time`): what the stages of its episodes have taken counts by that."""
    running: int = 0
    endpoints: tuple[EndpointLoad, ...] = ()
