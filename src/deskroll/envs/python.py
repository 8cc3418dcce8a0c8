"""Questions with a Python: real code, in a sandbox that lives as long as the episode. See `envs/interpreter`.

Owns what the model is told and the options. Whatever the code does is a result; a sandbox that cannot be had is the
machine's failure, not the agent's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
from pydantic import Field

from deskroll.desktops.providers.local.checks import check_namespaces
from deskroll.envs.interpreter import Interpreter, Limits
from deskroll.envs.tooled import ToolEnv, ToolFunction, ToolSettings
from deskroll.errors import InputError, SetupError
from deskroll.types import Record, Task

_DESCRIPTION = (
    "Run Python snippets in order, in one interpreter: names, imports and files in its home stay until the end. Shows "
    "what each prints and, like a console, the value of its last expression. There are the standard library and numpy, "
    "and no network."
)


class Snippets(Record, frozen=True):
    """What to run."""

    expressions: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=100_000)]], msgspec.Meta(min_length=1, max_length=20)
    ]


class PythonSettings(ToolSettings):
    """Options of the environment py."""

    timeout: float = Field(default=30.0, gt=0, le=3600)
    """Seconds that one call may take."""
    memory_mb: int = Field(default=1024, ge=128)
    """Memory of one episode's interpreter and all of its processes, in MB."""
    processes: int = Field(default=64, ge=8)
    """Processes and threads that it may have."""
    disk_mb: int = Field(default=256, ge=1)
    """Room for files in its home, in MB; they are kept in memory, and count there too."""
    output_chars: int = Field(default=10_000, ge=500, le=16_000)
    """Characters of a call's output that are shown: the beginning and the end."""

    def limits(self) -> Limits:
        """The same, for an interpreter."""
        return msgspec.convert(self, Limits, from_attributes=True)


class PythonEnv(ToolEnv):
    """A question and a Python interpreter."""

    Settings: ClassVar[type[ToolSettings]] = PythonSettings

    def functions(self) -> Mapping[str, ToolFunction]:
        """The interpreter."""
        self._interpreter = Interpreter(self.settings.limits())
        return {"python_interpreter": ToolFunction("python_interpreter", _DESCRIPTION, Snippets, self._run)}

    @staticmethod
    def prepare(tasks: Sequence[Task], settings: PythonSettings, folder: Path) -> str:
        """Try an interpreter, so that a machine without namespaces or numpy is found out before anything starts."""
        try:
            asyncio.run(_try(settings.limits()))
        except SetupError as error:
            check = check_namespaces()
            why = str(error) if check.ok else f"{check.found}; allow user namespaces, see `deskroll doctor`"
            raise InputError(f"the environment py cannot run here: {why}") from error
        return ""

    async def _run(self, given: Snippets) -> str:
        return await self._interpreter.run(given.expressions)

    async def close(self) -> None:
        """End the interpreter."""
        await self._interpreter.close()


async def _try(limits: Limits) -> None:
    interpreter = Interpreter(limits)
    try:
        said = await interpreter.run(["import numpy; int(numpy.arange(4).sum()) * 7"])
    finally:
        await interpreter.close()
    if said != "42":
        raise SetupError(f"the sandbox does not compute: {said[:500]}")
