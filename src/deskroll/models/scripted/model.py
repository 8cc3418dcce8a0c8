"""ScriptedModel: a model that answers from a script, served for the length of a run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from deskroll.errors import ConfigError
from deskroll.events import EventSink
from deskroll.models.openai import OpenAIModel
from deskroll.models.plugin import SCRIPTED
from deskroll.models.scripted.script import Script
from deskroll.models.scripted.server import ScriptedServer
from deskroll.models.settings import ModelSettings


class ScriptedModel(OpenAIModel):
    """Its name is `scripted:FILE`. It is asked over HTTP, as real ones are."""

    async def check(self) -> tuple[str, ...]:
        """It lists nothing, and answers for whatever name it is asked by."""
        return ()

    @classmethod
    def check_settings(cls, settings: ModelSettings, name: str) -> None:
        """The script must be there, and be one."""
        super().check_settings(settings, name)
        _load(settings, name)

    @classmethod
    def place(cls, settings: ModelSettings) -> str:
        """Nowhere in particular."""
        return ""

    @classmethod
    @asynccontextmanager
    async def serve(
        cls, settings: ModelSettings, name: str, sink: EventSink | None = None
    ) -> AsyncIterator[ModelSettings]:
        """Serve it from this process."""
        async with ScriptedServer(_load(settings, name)) as server:
            served = settings.model_copy(update={"base_url": server.url})
            async with OpenAIModel.serve(served, name, sink) as asked:
                yield asked


def _load(settings: ModelSettings, name: str) -> Script:
    path = Path(settings.name.removeprefix(SCRIPTED))
    if not path.is_file():
        problem = f"{str(path)!r} is not a file" if path.exists() else f"there is no such file ({path})"
        raise ConfigError(f"{name}.name is {settings.name!r}, and {problem}; write scripted:FILE")
    return Script.load(path)
