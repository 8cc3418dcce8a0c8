"""Agent: turns observations into decisions. One object an attempt; what it is given is all that it may touch.

Most kinds ask a model that speaks OpenAI's protocol. A kind that asks one of another protocol, or none at all, says so
in a class attribute `protocol`; whoever opens the model's client looks there (`dialect_of`). One that reads whole
accessibility trees (`Observation.raw_tree`) says so in `reads_tree`: for the others only what shows is read. One whose
options name code, as `--agent` does, says which in `code_options`: that code is held to what it was, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from deskroll.actions import Action
from deskroll.config import Settings, check
from deskroll.errors import AgentError, InputError
from deskroll.models.base import Model
from deskroll.registry import Registry
from deskroll.types import ConversationLog, Decision, Observation, Task, Tool, ToolRequest

if TYPE_CHECKING:
    from deskroll.models.dialect import Dialect

ModelProtocol = Literal["openai", "anthropic", "none"]
"""How an agent's model is spoken to; `none`: no model is asked."""


@dataclass(frozen=True)
class AgentContext:
    """What an agent works with."""

    model: Model
    tools: Sequence[Tool]
    decode: Callable[[ToolRequest], Sequence[Action]]
    """The actions that a call stands for; `ActionError` says what is wrong, for the model to read."""
    log: ConversationLog
    """Where the conversation is kept as it happens."""
    task: Task | None = None
    """What is attempted; None where somebody tries an agent out by hand."""
    sample: int = 0
    """Which of the task's samples it is."""
    model_name: str = ""
    """What the run calls its model; empty where none is asked."""
    screen: tuple[int, int] | None = None
    """Width and height of the desktop, in pixels; None where the environment has no screen."""
    shown: tuple[int, int] | None = None
    """Width and height of the picture of it that observations speak of; None: as the screen."""

    def require_screen(self, agent: str) -> tuple[int, int]:
        """The screen, for an agent that is of no use without one."""
        if self.screen is None:
            raise AgentError(f"agent {agent} acts on a screen, and the environment has none; use agent chat")
        return self.screen


class Agent(Protocol):
    """Whoever decides what to do next."""

    async def act(self, observation: Observation) -> Decision:
        """Decide; the first observation holds the instruction, each later one the results of the last actions."""


class AgentKind(Protocol):
    """A class of agents, as the registry names it.

    One that can attempt some tasks only may have a static `check_task(task, settings, screen)`: it refuses the others
    with an `InputError`, before anything is started.
    """

    Settings: ClassVar[type[Settings]]
    """The options that people may set."""

    def __call__(self, context: AgentContext, settings: Any) -> Agent:
        """Make the agent of one attempt."""


def agent_kind(name: str, registry: Registry | None = None) -> AgentKind:
    """The kind of agent of that name."""
    kind: Any = (registry or Registry()).load("agent", name)
    acts = callable(getattr(kind, "act", None)) if isinstance(kind, type) else callable(kind)
    if not (acts and _has_settings(kind)):
        if callable(getattr(kind, "predict", None)):
            raise InputError(
                f"{name!r} has a predict, as agents for OSWorld have: --agent adapter --set agent_options.class={name}"
            )
        lacks = [] if acts else ["act"]
        if not _has_settings(kind):
            lacks.append("Settings (a class made from deskroll.config.Settings)")
        raise InputError(f"{name!r} is no agent: it has no {', no '.join(lacks)}; docs/agents.md shows a whole one")
    return kind  # type: ignore[no-any-return]


def _has_settings(kind: object) -> bool:
    options = getattr(kind, "Settings", None)
    return isinstance(options, type) and issubclass(options, Settings)


def reads_tree(kind: AgentKind) -> bool:
    """Whether agents of a kind read accessibility trees themselves, beyond the table of what shows."""
    return bool(getattr(kind, "reads_tree", False))


def code_options(kind: AgentKind, options: Mapping[str, Any]) -> dict[str, str]:
    """Of the options of that kind of agent, those that name code: `package.module:Class` or `FILE.py:Class`."""
    named = ((name, options.get(name)) for name in getattr(kind, "code_options", ()))
    return {name: value for name, value in named if isinstance(value, str)}


def model_protocol(kind: AgentKind) -> ModelProtocol:
    """How the model of that kind of agent is spoken to."""
    protocol: ModelProtocol = getattr(kind, "protocol", "openai")
    if protocol not in ("openai", "anthropic", "none"):
        raise InputError(f"an agent's protocol is {protocol!r}; allowed: openai, anthropic, none")
    return protocol


def dialect_of(kind: AgentKind) -> type[Dialect]:
    """How the model of that kind of agent is spoken to; where it asks none, the environment may still."""
    if model_protocol(kind) == "anthropic":
        from deskroll.models.anthropic import AnthropicMessages  # noqa: PLC0415  (most runs need no second one)

        return AnthropicMessages
    from deskroll.models.openai import OpenAIChat  # noqa: PLC0415

    return OpenAIChat


def agent_settings(kind: AgentKind, options: dict[str, Any], name: str) -> Settings:
    """Check the options of an agent."""
    return check(kind.Settings, options, f"agent_options (agent {name})")
