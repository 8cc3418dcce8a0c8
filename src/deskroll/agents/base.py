"""Agent: turns observations into decisions. One object an attempt; what it is given is all that it may touch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from deskroll.actions import Action
from deskroll.config import Settings, check
from deskroll.errors import InputError
from deskroll.models.base import Model
from deskroll.registry import Registry
from deskroll.types import Decision, Observation, Scribe, Tool, ToolRequest


@dataclass(frozen=True)
class Surroundings:
    """What an agent works with."""

    model: Model
    tools: Sequence[Tool]
    decode: Callable[[ToolRequest], Sequence[Action]]
    """The actions that a call stands for; `ActionError` says what is wrong, for the model to read."""
    scribe: Scribe
    """Where the conversation is kept as it happens."""


class Agent(Protocol):
    """Whoever decides what to do next."""

    async def act(self, observation: Observation) -> Decision:
        """Decide; the first observation holds the instruction, each later one the results of the last actions."""


class AgentKind(Protocol):
    """A class of agents, as the registry names it."""

    Settings: ClassVar[type[Settings]]
    """The options that people may set."""

    def __call__(self, surroundings: Surroundings, settings: Any) -> Agent:
        """Make the agent of one attempt."""


def agent_kind(name: str, registry: Registry | None = None) -> AgentKind:
    """The kind of agent of that name."""
    kind: Any = (registry or Registry()).load("agent", name)
    acts = callable(getattr(kind, "act", None)) if isinstance(kind, type) else callable(kind)
    options = getattr(kind, "Settings", None)
    if not (acts and isinstance(options, type) and issubclass(options, Settings)):
        raise InputError(f"{name!r} is no agent: it has no Settings or no act; see deskroll.agents.AgentKind")
    return kind  # type: ignore[no-any-return]


def agent_settings(kind: AgentKind, options: dict[str, Any], name: str) -> Settings:
    """Check the options of an agent."""
    return check(kind.Settings, options, f"agent_options (agent {name})")
