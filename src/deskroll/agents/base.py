"""Agent: turns observations into decisions. One object an attempt; what it is given is all that it may touch.

Most kinds ask a model that speaks OpenAI's protocol; one that asks another, or none at all, says so (`protocol`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from deskroll.actions import Action
from deskroll.actions.pixels import Picture, Size
from deskroll.agents.image import image_size
from deskroll.config import Settings
from deskroll.errors import AgentError
from deskroll.models.base import Model
from deskroll.models.plugin import OPENAI_KIND, ModelPlugin, model_kind
from deskroll.models.settings import ModelSettings
from deskroll.plugins import Plugin, load_plugin
from deskroll.types import ConversationLog, Decision, Observation, Task, Tool, ToolRequest

NO_MODEL = "none"
"""The protocol of agents that ask no model."""


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
    screen: Size | None = None
    """Width and height of the desktop, in pixels; None where the environment has no screen."""
    shown: Size | None = None
    """Width and height of the picture of it that observations speak of; None: as the screen."""

    def picture(self, screen: Size, screenshot: bytes | None) -> Picture:
        """The screen as it is shown: in the image's own size or, where that does not say, in that of the settings."""
        size = image_size(screenshot) if screenshot else None
        return Picture(shown=size or self.shown or screen, screen=screen)

    def require_screen(self, agent: str) -> Size:
        """The screen, for an agent that is of no use without one."""
        if self.screen is None:
            raise AgentError(f"agent {agent} acts on a screen, and the environment has none; use agent chat")
        return self.screen


class Agent(Plugin):
    """Whoever decides what to do next. A kind of agent is a class made from this."""

    protocol: ClassVar[str] = "openai"
    """How its model is asked where the settings say nothing: a name of the registry's kind `model`, or `none`."""
    reads_tree: ClassVar[bool] = False
    """Whether it reads accessibility trees itself, beyond the table of what shows (`Observation.raw_tree`)."""

    def __init__(self, context: AgentContext, settings: Any) -> None:
        self.context = context
        self.settings = settings

    @staticmethod
    def check_task(task: Task, settings: Any, screen: Size | None) -> None:
        """Refuse, with an `InputError`, a task that it cannot attempt: before anything is started."""

    @abstractmethod
    async def act(self, observation: Observation) -> Decision:
        """Decide; the first observation holds the instruction, each later one the results of the last actions."""

    @classmethod
    def advice(cls, name: str, part: object) -> str:
        """For a class as OSWorld has them."""
        if not hasattr(part, "predict") or (isinstance(part, type) and issubclass(part, Agent)):
            return ""
        return f"has a predict, as agents for OSWorld have: --agent adapter --set agent_options.class={name}"


def agent_kind(name: str) -> type[Agent]:
    """The kind of agent of that name."""
    return load_plugin("agent", name, Agent)


def agents_model(kind: type[Agent], settings: ModelSettings) -> type[ModelPlugin]:
    """How the model of that kind of agent is asked; where it asks none, the environment may still."""
    return model_kind(settings, OPENAI_KIND if kind.protocol == NO_MODEL else kind.protocol)


def agent_settings(kind: type[Agent], options: dict[str, Any], name: str) -> Settings:
    """Check the options of an agent."""
    return kind.read_options(options, f"agent_options (agent {name})")
