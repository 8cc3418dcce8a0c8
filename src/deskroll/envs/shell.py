"""A terminal without a desktop: commands in the sandbox of `py`, for the length of an episode. See `envs/interpreter`.

Owns what the model is told, and the judging by a command's exit code. What a model writes runs in processes that the
sandbox's first one starts, never in that one: it alone says what came of a command, under a word that is drawn anew for
each check, and it imports nothing from the home, where the model may write. Whatever a call has started ends with it,
so that nothing is at work while a check runs.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec

from deskroll.envs.base import Ending
from deskroll.envs.interpreter import Interpreter
from deskroll.envs.interpreter.sandbox import HOME
from deskroll.envs.python import PythonEnv, PythonSettings
from deskroll.envs.tooled import ToolFunction, ToolSettings
from deskroll.errors import InputError, SetupError
from deskroll.types import Observation, Record, Score, Task

_BASH = (
    "Run a command with bash, in the home folder; shows what it prints, and its exit code. Files in the home stay "
    "until the end; what a command leaves running ends with it. There is no network."
)
_READ = "Read a text file; a path is relative to the home folder."
_WRITE = "Write a text file, making its folder; what was in it is replaced."
_CHARS = 100_000
_INSIDE = f"""
import sys
sys.path[:] = [each for each in sys.path if each != {HOME!r}]
import os, subprocess

def run(command, output=None, **environment):
    command = ["bash", "-c", command]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={{**os.environ, **environment}}
    )
    return done.returncode

class Note(str):
    __repr__ = str.__str__

def bash(command):
    return Note("[exit code {{}}]".format(run(command)))

def judge(word, command):
    return word, run(command, subprocess.DEVNULL, PYTHONNOUSERSITE="1")

def opened(path, mode):
    return open(os.path.join({HOME!r}, path), mode, encoding="utf-8", errors="replace")

def read_file(path):
    try:
        with opened(path, "r") as file:
            sys.stdout.write(file.read({_CHARS}))
    except (OSError, ValueError) as error:
        print("error:", error)

def write_file(path, text):
    try:
        os.makedirs(os.path.dirname(os.path.join({HOME!r}, path)), exist_ok=True)
        with opened(path, "w") as file:
            file.write(text)
    except (OSError, ValueError) as error:
        print("error:", error)

"""
"""What the sandbox's first process knows: one function for each tool, and one for the check."""

Text = Annotated[str, msgspec.Meta(max_length=_CHARS)]


class Command(Record, frozen=True):
    """What to run."""

    command: Text


class Readable(Record, frozen=True):
    """What to read."""

    path: Text


class Written(Record, frozen=True):
    """What to write, and where."""

    path: Text
    text: Text


class ShellSettings(PythonSettings):
    """Options of the environment shell: those of py, for each call of a tool."""


class ShellEnv(PythonEnv):
    """A task and a shell; judged by its `check`, a command that succeeds once the task is done, or by its answer."""

    Settings: ClassVar[type[ToolSettings]] = ShellSettings

    def functions(self) -> Mapping[str, ToolFunction]:
        """The shell and its files."""
        self._interpreter = Interpreter(self.settings.limits())
        tools = (
            ToolFunction("bash", _BASH, Command, lambda given: self._call("bash", given.command)),
            ToolFunction("read_file", _READ, Readable, lambda given: self._call("read_file", given.path)),
            ToolFunction("write_file", _WRITE, Written, self._write),
        )
        return {each.tool.name: each for each in tools}

    @classmethod
    def check_task(cls, task: Task) -> None:
        """Its check is a command, and its files are texts by their paths."""
        super().check_task(task)
        check, files = task.metadata.get("check", ""), task.metadata.get("files", {})
        if not isinstance(check, str):
            raise InputError(f"check is {check!r}; it must be a command, e.g. 'test -s report.txt'")
        if not isinstance(files, Mapping) or not all(isinstance(each, str) for each in files.values()):
            raise InputError('files must be texts by their paths, e.g. {"notes.txt": "buy milk"}')

    @classmethod
    def is_judged(cls, task: Task) -> bool:
        """By its check or, where it has none, by its answer."""
        return bool(task.metadata.get("check")) or task.answer is not None

    async def reset(self) -> Observation:
        """Write the task's files, and show what it is."""
        for path, text in self.task.metadata.get("files", {}).items():
            if said := await self._write(Written(path=path, text=text)):
                raise SetupError(f"task {self.task.id!r}: {path} could not be written: {said}")
        return await super().reset()

    async def _write(self, given: Written) -> str:
        said = await self._call("write_file", given.path, given.text)
        return "" if said == "(no output)" else said

    async def _call(self, function: str, *given: str) -> str:
        return await self._interpreter.run([f"{_INSIDE}{function}({', '.join(map(repr, given))})"])

    async def score(self, ending: Ending) -> Score:
        """By the exit code of the task's check; where it has none, the answer is compared."""
        check = self.task.metadata.get("check")
        if not check:
            return await super().score(ending)
        word = secrets.token_hex(16)
        said = await self._call("judge", word, check)
        found = re.fullmatch(rf"\('{word}', (-?\d+)\)", said)
        if found is None:
            return Score(value=0.0, reason=f"the check did not come to its end: {said[-500:]}")
        reason = f"check: exit code {found[1]}"
        return Score(value=float(found[1] == "0"), reason=reason, found=found[1], expected="0")
