"""The table of steps, by OSWorld's names; checks a task's steps and performs them.

Guarantees: a step that fails ends the set-up at once, as `setup`, and the error says which step of which task it was;
none is left out in silence. Where it is upstream's way and the settings want it, a failing command is told and noted;
never one that was cut off, by a signal or by its time limit: what it did until then is nobody's wish.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from deskroll.desktops.base import Desktop
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.envs.osworld.setup import accounts, commands, downloads, drive, history, login, tabs, windows
from deskroll.envs.osworld.setup import records as told
from deskroll.envs.osworld.setup.context import SetupContext, Took
from deskroll.errors import CommandTimeout, GuestError, InputError, SetupError, did_you_mean, plain
from deskroll.types import Record, Task

_log = logging.getLogger(__name__)
Perform = Callable[[Desktop, Any, SetupContext], Awaitable[None]]


STEPS: Mapping[str, tuple[type[Record], Perform]] = {
    "execute": (told.Execute, commands.execute),
    "command": (told.Execute, commands.execute),
    "launch": (told.Launch, commands.launch),
    "sleep": (told.Sleep, lambda desktop, given, context: asyncio.sleep(given.seconds)),  # the task's own wish
    "open": (told.Open, windows.open_file),
    "activate_window": (told.WindowName, windows.activate),
    "close_window": (told.WindowName, windows.close),
    "download": (told.Download, downloads.download),
    "chrome_open_tabs": (told.OpenTabs, tabs.open_tabs),
    "chrome_close_tabs": (told.CloseTabs, tabs.close_tabs),
    "update_browse_history": (told.History, history.update),
    "login": (told.Login, login.login),
    "googledrive": (told.Drive, drive.operate),
}
_COMMANDS = ("execute", "command")
_FORGIVEN = (*_COMMANDS, "launch", "activate_window", "close_window")
"""Steps that a guest may refuse in `postconfig`: upstream logs that and goes on."""


def check_steps(task: Task, settings: OSWorldSettings | None = None) -> None:
    """Refuse a task with a step that does not exist, is told nonsense or (with `settings`) lacks its account."""
    for where, step in _steps(task):
        kind = str(step.get("type"))
        if kind not in STEPS:
            raise InputError(f"{where}.type is {plain(kind, 80)!r}; {_no_step(kind)}")
        try:
            msgspec.convert(step.get("parameters", {}), STEPS[kind][0])
        except msgspec.ValidationError as error:
            raise InputError(f"{where} ({kind}): parameters: {error}") from None
        if settings is not None:
            try:
                accounts.check(kind, settings)
            except SetupError as error:
                raise InputError(f"{where} ({kind}): {error}") from None


def _no_step(kind: str) -> str:
    return f"there is no such step{did_you_mean(kind, STEPS)}; known: {', '.join(STEPS)}"


def bundled_files(task: Task, folder: Path) -> Iterator[Path]:
    """The files that come with a task, for its steps and its evaluator; `SetupError` where one is not there."""
    for url in (*_step_files(task), *_cloud_files(task)):
        if downloads.is_bundled(url):
            yield downloads.bundled(url, folder)


def _step_files(task: Task) -> Iterator[str]:
    for _, step in _steps(task):
        kind = str(step.get("type"))
        if kind not in ("download", "googledrive"):
            continue
        match msgspec.convert(step.get("parameters", {}), STEPS[kind][0]):
            case told.Download(files=files):
                yield from (file.url for file in files)
            case told.Drive(operation=operations, args=args):
                yield from (each.url for name, each in zip(operations, args, strict=True) if name == "upload")


def _cloud_files(task: Task) -> Iterator[str]:
    """What the evaluator's getters compare with, and this machine fetches."""
    for name in ("result", "expected"):
        given = task.evaluator.get(name)
        for getter in given if isinstance(given, list | tuple) else [given]:
            if isinstance(getter, Mapping) and getter.get("type") == "cloud_file":
                paths = getter.get("path")
                yield from (each for each in (paths if isinstance(paths, list) else [paths]) if isinstance(each, str))


def _steps(task: Task) -> Iterator[tuple[str, Mapping[str, Any]]]:
    after = task.evaluator.get("postconfig", [])
    if not isinstance(after, list | tuple):
        raise InputError("evaluator.postconfig is not a list of steps")
    for name, steps in (("config", task.setup), ("evaluator.postconfig", after)):
        for n, step in enumerate(steps):
            if not isinstance(step, Mapping):
                raise InputError(
                    f'{name}[{n}] is not an object, e.g. {{"type": "sleep", "parameters": {{"seconds": 1}}}}'
                )
            yield f"{name}[{n}]", step


async def perform(steps: Sequence[Mapping[str, Any]], desktop: Desktop, context: SetupContext) -> None:
    """Perform steps in order; what they leave on this side is in `context`.

    Raises `SetupError`, or a `DesktopError` when it is the desktop that failed.
    """
    for n, step in enumerate(steps):
        kind = str(step.get("type"))
        where = f"task {context.task_id!r}, set-up step {n} ({plain(kind, 80)})"
        if kind not in STEPS:
            raise SetupError(f"{where}: {_no_step(kind)}")
        record, act = STEPS[kind]
        try:
            given = msgspec.convert(step.get("parameters", {}), record)
        except msgspec.ValidationError as error:
            raise SetupError(f"{where}: {error}") from None
        began = time.monotonic()
        code, said = None, ""
        try:
            await act(desktop, given, context if kind in _FORGIVEN else replace(context, forgiving=False))
        except commands.CommandFailed as error:
            code, said = error.returncode, error.stderr
            _go_on(kind, f"{where}: {error}", context, cut_off=error.cut_off)
        except SetupError as error:
            raise SetupError(f"{where}: {error}") from error
        except GuestError as error:  # a guest that refuses a step is well itself
            said = commands.hidden(str(error), context)
            _go_on(kind, f"{where}: {said}", context, cut_off=isinstance(error, CommandTimeout))
        finally:
            took = round(time.monotonic() - began, 3)
            context.took.append(Took(type=kind, seconds=took, returncode=code, stderr=said))


def _go_on(kind: str, what: str, context: SetupContext, *, cut_off: bool) -> None:
    """Say what failed where the rest is performed all the same; elsewhere, raise it."""
    if cut_off:
        raise SetupError(what) from None  # the guest's own words may hold the password
    if context.forgiving and kind in _FORGIVEN:
        _log.info("%s; going on, as OSWorld does after the agent has ended", what)
    elif kind in _COMMANDS and context.settings.failing_commands == "warn":
        _log.warning("%s; going on, since failing_commands is warn", what)
    else:
        hint = "; set env_options.failing_commands=warn to go on, as OSWorld's runner does" if kind in _COMMANDS else ""
        raise SetupError(f"{what}{hint}") from None
