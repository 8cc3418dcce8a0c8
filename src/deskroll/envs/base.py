"""Env: a task made live. Single use: reset once, stepped many times, scored once, closed.

An environment says what it needs (`desktop_spec`): a desktop, which the caller leases and hands in, or nothing. It owns
its tools: it names them for the model and turns what the model calls into actions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from deskroll.actions import Action, Answer, Done, Fail, ToolCall
from deskroll.config import Settings
from deskroll.desktops.base import Desktop, DesktopSpec
from deskroll.errors import ActionError, plain
from deskroll.models.base import Model
from deskroll.plugins import Plugin, load_plugin
from deskroll.types import Observation, Record, Score, Stage, StopReason, Task, Tool, ToolRequest

STOPS: Mapping[type[Action], StopReason] = {
    Done: StopReason.DONE,
    Fail: StopReason.FAIL,
    Answer: StopReason.ANSWER,
}
"""Why an episode is over, by the action that ends it."""


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


class Env(Plugin):
    """One task, live. A kind of environment is a class made from this; what is not abstract may be left as it is."""

    def __init__(self, task: Task, settings: Any, context: EnvContext) -> None:
        self.task = task
        self.settings = settings
        self.context = context

    @staticmethod
    def desktop_spec(task: Task, settings: Any) -> DesktopSpec | None:
        """The desktop that this task needs; None: none at all."""
        return None

    @staticmethod
    def picture_size(settings: Any, spec: DesktopSpec) -> tuple[int, int]:
        """Width and height of the picture of such a desktop that observations speak of."""
        return spec.width, spec.height

    @classmethod
    @abstractmethod
    def offered(cls, settings: Any) -> Sequence[Tool]:
        """The tools that its agents get, as far as they are known without a task."""

    @classmethod
    def check_task(cls, task: Task) -> None:
        """Refuse, with an `InputError`, a task that can never be prepared or judged: before anything is started."""

    @classmethod
    def is_judged(cls, task: Task) -> bool:
        """Whether there will be a score, as far as the task can tell."""
        return True

    @staticmethod
    def prepare(tasks: Sequence[Task], settings: Any, folder: Path) -> str:
        """Make ready what these tasks share, once, before the first runs; `InputError` where that cannot be.

        `folder` is that of the tasks' file. May take long (an index is built): it is called in a thread of its own.
        Returns a digest of what outcomes depend on besides tasks and settings (documents, pages), empty where there is
        nothing of the kind: a resume refuses when it has changed.
        """
        return ""

    @staticmethod
    async def close_shared() -> None:
        """End what it keeps for all attempts of a process (warm helpers), which runs no more of them."""

    @property
    def tools(self) -> Sequence[Tool]:
        """What the agent can call."""
        return self.offered(self.settings)

    @abstractmethod
    async def reset(self) -> Observation:
        """Prepare the task and show its beginning."""

    def decode(self, call: ToolRequest) -> Sequence[Action]:
        """The actions that a call stands for; `ActionError` says what is wrong with it, for the model to read."""
        return (decode_call(call, {tool.name: dict[str, Any] for tool in self.tools}),)

    @abstractmethod
    async def step(self, actions: Sequence[Action]) -> TurnResult:
        """Perform actions in order, all of them, and look."""

    @abstractmethod
    async def score(self, ending: Ending) -> Score:
        """Judge what was done."""

    async def close(self) -> None:
        """Let go of whatever it holds; called exactly once, however the episode ended."""


def decode_call(call: ToolRequest, tools: Mapping[str, Any]) -> ToolCall:
    """A call of one of the tools, by their names, whose arguments are of its type; else `ActionError`."""
    if call.name not in tools:
        raise ActionError(f"there is no tool {plain(call.name, 80)!r}; tools: {', '.join(tools) or 'none'}")
    try:
        arguments = msgspec.json.decode(call.arguments or "{}", type=tools[call.name])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ActionError(f"{call.name}: the arguments do not fit: {error}; see the tool's parameters") from None
    return ToolCall(name=call.name, arguments=msgspec.to_builtins(arguments), call_id=call.id)


def env_kind(name: str) -> type[Env]:
    """The kind of environment of that name."""
    return load_plugin("env", name, Env)


def env_settings(kind: type[Env], options: dict[str, Any], name: str) -> Settings:
    """Check the options of an environment."""
    return kind.read_options(options, f"env_options (env {name})")
