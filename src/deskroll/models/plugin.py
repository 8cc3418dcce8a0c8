"""ModelPlugin: the base of every kind of model: how it is opened, asked, checked and, where that is wanted, served.

Messages and tools cross this seam as OpenAI writes them (`models/base.py`), and every kind takes those. An agent whose
tools are of another protocol's own needs a kind of that protocol.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar, Self

from deskroll.errors import ConfigError
from deskroll.events import EventSink, guarded
from deskroll.models.base import ANY_CALL, EndpointLoad, ModelCall
from deskroll.models.settings import ModelSettings
from deskroll.plugins import Plugin, load_plugin
from deskroll.types import Completion

OPENAI_KIND = "openai"
SCRIPTED_KIND = "scripted"
SCRIPTED = f"{SCRIPTED_KIND}:"
"""A model whose name begins so answers from a script; without a file, from the one beside the tasks."""

SILENT_AFTER_S = 15.0


class ModelPlugin(Plugin):
    """A model as one process holds it: opened once, asked by all of its episodes. Use with `async with`."""

    protocol: ClassVar[str] = OPENAI_KIND
    """Whose own tools it takes, beside functions."""
    checks_exact: ClassVar[bool] = False
    """Whether it sees itself to the setting `exact`, and so asks again; else an inexact answer fails the attempt."""

    def __init__(
        self, settings: ModelSettings, *, sink: EventSink | None = None, silent_after: float = SILENT_AFTER_S
    ) -> None:
        """`silent_after`: for how long a server may answer nobody, in seconds, before that is told as an event."""
        self.settings = settings
        self.options = self.read_options(settings.options, "model.options")
        self._sink = guarded(sink)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Let go of what it holds."""

    @abstractmethod
    async def complete(
        self, messages: Sequence[bytes], tools: bytes | None = None, *, call: ModelCall = ANY_CALL
    ) -> Completion:
        """Answer a conversation; see `Model`."""

    @property
    def shown(self) -> str:
        """Where it answers, as it may be shown."""
        return self.settings.base_url

    @property
    def knows_price(self) -> bool:
        """Whether the cost of an answer can be told."""
        return self.settings.price is not None

    def loads(self) -> tuple[EndpointLoad, ...]:
        """What goes on at this moment at each server that answers for it."""
        return (EndpointLoad(url=self.shown),)

    def end_session(self, session: str) -> None:
        """The attempt whose calls were of this session is over."""

    async def check(self) -> tuple[str, ...]:
        """Whether it can be asked at all: the names of the models that are there, none where there is no list."""
        return ()

    @classmethod
    def check_settings(cls, settings: ModelSettings, name: str) -> None:
        """Raise `ConfigError` for what can be told without asking anybody; `name` is that of the settings."""
        cls.read_options(settings.options, f"{name}.options")

    @classmethod
    def place(cls, settings: ModelSettings) -> str:
        """Where it will be asked, as far as settings can tell."""
        return settings.base_url

    @classmethod
    def how_to_reach(cls, name: str) -> str:
        """What to set where it cannot be reached; `name` is that of the settings."""
        return f"set {name}.base_url"

    @classmethod
    @asynccontextmanager
    async def serve(
        cls, settings: ModelSettings, name: str, sink: EventSink | None = None
    ) -> AsyncIterator[ModelSettings]:
        """Have it answer for the length of a run, where that takes more than asking: the settings to ask it with."""
        cls.check_settings(settings, name)
        yield settings


def model_kind(settings: ModelSettings, protocol: str = OPENAI_KIND, name: str = "model") -> type[ModelPlugin]:
    """How that model is asked: as its settings say, else in the protocol of whoever asks."""
    of_name = SCRIPTED_KIND if settings.name.startswith(SCRIPTED) else protocol
    kind = load_plugin("model", settings.kind or of_name, ModelPlugin)
    if protocol not in (OPENAI_KIND, kind.protocol):
        chosen = f"kind is {settings.kind!r}" if settings.kind else f"name is {settings.name!r}"
        raise ConfigError(
            f"{name}.{chosen}, which speaks the protocol {kind.protocol}; this agent needs one that speaks {protocol}"
        )
    return kind
