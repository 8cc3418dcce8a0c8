"""Set-up steps: what is done to a desktop before the agent sees it.

Guarantees: a step that fails fails the episode as `setup`, at once, and says which step it was; none is left out in
silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from deskroll.desktops.base import Desktop
from deskroll.errors import GuestError, InputError, SetupError, plain
from deskroll.types import Record, Task

_RUN_S = 120.0


class _Execute(Record, frozen=True):
    command: list[str] | str
    shell: bool = False


class _Sleep(Record, frozen=True):
    seconds: float


async def _execute(desktop: Desktop, given: _Execute) -> None:
    done = await desktop.run(given.command, timeout=_RUN_S)
    if done.returncode != 0:
        raise SetupError(f"{given.command!r} ended with {done.returncode}: {plain(done.error or done.output)}")


async def _launch(desktop: Desktop, given: _Execute) -> None:
    await desktop.launch(given.command)


async def _sleep(desktop: Desktop, given: _Sleep) -> None:
    await asyncio.sleep(given.seconds)


_STEPS: Mapping[str, tuple[type[Record], Callable[[Desktop, Any], Awaitable[None]]]] = {
    "execute": (_Execute, _execute),
    "command": (_Execute, _execute),
    "launch": (_Execute, _launch),
    "sleep": (_Sleep, _sleep),
}
"""By OSWorld's names."""


def check_steps(task: Task) -> None:
    """Refuse a task with a step that does not exist."""
    for n, step in enumerate(task.setup):
        if (kind := str(step.get("type"))) not in _STEPS:
            raise InputError(f"config[{n}].type is {kind!r}; there is no such step; known: {', '.join(_STEPS)}")


async def prepare(task: Task, desktop: Desktop) -> None:
    """Perform a task's set-up steps in order."""
    for n, step in enumerate(task.setup):
        kind = str(step.get("type"))
        where = f"task {task.id!r}, set-up step {n} ({kind})"
        if kind not in _STEPS:
            raise SetupError(f"{where}: there is no such step; known: {', '.join(_STEPS)}")
        record, perform = _STEPS[kind]
        try:
            given = msgspec.convert(step.get("parameters", {}), record)
        except msgspec.ValidationError as error:
            raise SetupError(f"{where}: {error}") from None
        try:
            await perform(desktop, given)
        except (SetupError, GuestError) as error:  # a guest that refuses a step is well itself
            raise SetupError(f"{where}: {error}") from error
