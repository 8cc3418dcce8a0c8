"""Env: a task made live. Single use: reset once, stepped many times, scored once, closed.

An environment says what it needs (`desktop_spec`): a desktop, which the caller leases and hands in, or nothing. It owns
its tools: it names them for the model and turns what the model calls into actions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec

from deskroll.actions import Action
from deskroll.config import Settings, check
from deskroll.desktops.base import Desktop, DesktopSpec
from deskroll.errors import InputError
from deskroll.models.base import Model
from deskroll.registry import Registry
from deskroll.types import Observation, Record, Score, Stage, StopReason, Task, Tool, ToolRequest

_STATIC = ("desktop_spec", "offered", "check_task", "prepare")
"""What a class of environments has, besides its settings."""


class TurnResult(Record, frozen=True):
    """What came of one step."""

    observation: Observation
    """What is seen now; `results` holds one text for each action."""
    stop: StopReason | None = None
    """Why the episode is over; None while it goes on."""
    answer: str | None = None
    seconds: dict[Stage, float] = msgspec.field(default_factory=dict)
    """Where the step's time went, as far as the environment knows better than its caller."""
    settled: str = ""


class Ending(Record, frozen=True):
    """How an episode ended, for whoever judges it."""

    stop: StopReason
    answer: str | None = None


@dataclass(frozen=True)
class EnvContext:
    """What an environment may use, besides its task and its options. Whoever hands it out takes it back."""

    desktop: Desktop | None = None
    """The desktop that its `desktop_spec` asked for."""
    model: Model | None = None
    """The run's own model, for tools that ask one; what it is asked is counted with the attempt."""
    judge: Model | None = None
    """The model that judges answers; counted, too."""
    raw_tree: bool = False
    """Whether the agent reads accessibility trees itself (`Observation.raw_tree`)."""
    keep: Callable[[str, bytes], object] = lambda name, data: None
    """Keeps a file with the attempt, under that name."""
    folder: Path = Path()
    """Where the file of tasks is: paths in tasks are relative to it."""


class Env(Protocol):
    """One task, live."""

    @property
    def tools(self) -> Sequence[Tool]:
        """What the agent can call."""

    async def reset(self) -> Observation:
        """Prepare the task and show its beginning."""

    def decode(self, call: ToolRequest) -> Sequence[Action]:
        """The actions that a call stands for; `ActionError` says what is wrong with it, for the model to read."""

    async def step(self, actions: Sequence[Action]) -> TurnResult:
        """Perform actions in order, all of them, and look."""

    async def score(self, ending: Ending) -> Score:
        """Judge what was done."""

    async def close(self) -> None:
        """Let go of whatever it holds; called exactly once, however the episode ended."""


class EnvKind(Protocol):
    """A class of environments, as the registry names it.

    One that keeps something for all attempts of a process (warm helpers) may have `async def close_shared()`, without
    arguments: it is called when that process runs no more of them.
    """

    Settings: ClassVar[type[Settings]]
    """The options that people may set for all tasks of a run."""

    @staticmethod
    def desktop_spec(task: Task, settings: Any) -> DesktopSpec | None:
        """The desktop that this task needs; None: none at all."""

    @classmethod
    def offered(cls, settings: Any) -> Sequence[Tool]:
        """The tools that its agents get, as far as they are known without a task."""

    @staticmethod
    def check_task(task: Task) -> None:
        """Refuse, with an `InputError`, a task that can never be prepared or judged: before anything is started."""

    @staticmethod
    def prepare(tasks: Sequence[Task], settings: Any, folder: Path) -> str:
        """Make ready what these tasks share, once, before the first runs; `InputError` where that cannot be.

        `folder` is that of the tasks' file. May take long (an index is built): it is called in a thread of its own.
        Returns a digest of what outcomes depend on besides tasks and settings (documents, pages), empty where there is
        nothing of the kind: a resume refuses when it has changed.
        """

    def __call__(self, task: Task, settings: Any, context: EnvContext) -> Env:
        """Make the environment of one attempt."""


def env_kind(name: str, registry: Registry | None = None) -> EnvKind:
    """The kind of environment of that name."""
    kind: Any = (registry or Registry()).load("env", name)
    lacks = [each for each in _STATIC if not callable(getattr(kind, each, None))]
    if not _has_settings(kind):
        lacks.insert(0, "Settings (a class made from deskroll.config.Settings)")
    if lacks or not callable(kind):
        what = f"it has no {', no '.join(lacks)}" if lacks else "it cannot be called"
        raise InputError(f"{name!r} is no environment: {what}; docs/environments.md shows a whole one")
    return kind  # type: ignore[no-any-return]


def env_settings(kind: EnvKind, options: dict[str, Any], name: str) -> Settings:
    """Check the options of an environment."""
    return check(kind.Settings, options, f"env_options (env {name})")


def is_judged(kind: object, task: Task) -> bool:
    """Whether a task has what deskroll's own scoring goes by; an environment that scores by itself needs neither."""
    scores = getattr(kind, "score", None)
    if not getattr(scores, "__module__", "").startswith("deskroll."):
        return True
    return task.answer is not None or "func" in task.evaluator


def _has_settings(kind: object) -> bool:
    settings = getattr(kind, "Settings", None)
    return isinstance(settings, type) and issubclass(settings, Settings)
