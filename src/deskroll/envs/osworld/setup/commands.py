"""execute, command, launch: programs in the desktop.

Guarantees: the desktop's password, which commands get in place of `{CLIENT_PASSWORD}`, is in no message.
"""

from __future__ import annotations

import asyncio
import shlex

from deskroll.clocks import running_time
from deskroll.desktops.base import Desktop, RunResult
from deskroll.envs.osworld.setup.context import SetupContext
from deskroll.envs.osworld.setup.records import Execute, Launch, Until, is_true
from deskroll.errors import FailureKind, GuestError, SetupError, plain

RUN_S = 120.0
"""For a command; that of OSWorld's own guest."""
UNTIL_S = 300.0
"""For all repetitions of a command; upstream's has no end."""
_AGAIN_S = 0.3
_REFUSALS = 5
"""So many times a guest may refuse a command that is repeated; upstream's number."""
_LONGEST_ERROR = 4000
_OWN_HAND = "SIGTERM"
"""What a command may bring upon itself: `pkill -f NAME` ends the very shell that was given that line."""


class CommandFailed(SetupError):
    """A command ended with an error; upstream's runner does not look at that."""

    kind = FailureKind.COMMAND_FAILED

    def __init__(self, message: str, returncode: int, stderr: str, *, cut_off: bool = False) -> None:
        super().__init__(message)
        self.returncode = returncode
        self.stderr = stderr
        self.cut_off = cut_off
        """Whether it was ended by another hand than its own."""


async def execute(desktop: Desktop, given: Execute, context: SetupContext) -> None:
    """Run a command to its end, once or until what is asked for is so."""
    shown = plain(str(given.command), 200)
    resolved = _resolved(given)
    command = _fill(resolved, context) if isinstance(resolved, str) else [_fill(word, context) for word in resolved]
    if given.until is not None:
        done = await _repeat(desktop, command, given.until, shown, context)
    else:
        done = await desktop.run(command, timeout=RUN_S)
    for name, text in ((given.stdout, done.output), (given.stderr, done.error)):
        if name:
            context.outputs[name] = text.encode(errors="surrogateescape")
    if given.until is None and done.returncode != 0:
        said = plain(hidden(done.error or done.output, context))
        stderr = plain(hidden(done.error, context), _LONGEST_ERROR, keep="\n\t")
        how = f"was ended by {done.signal}" if done.signal else f"ended with {done.returncode}"
        cut_off = done.signal not in ("", _OWN_HAND)
        raise CommandFailed(f"{shown!r} {how}: {said}", done.returncode, stderr, cut_off=cut_off)


async def launch(desktop: Desktop, given: Launch, context: SetupContext) -> None:
    """Start a program and leave it running."""
    await desktop.launch(_resolved(given))


def _resolved(given: Execute | Launch) -> list[str] | str:
    """What to run: a list of words, or a string for the shell."""
    command = given.command
    if not command or not any(command):
        raise SetupError("the command is empty; give a list of words, or a string")
    shell = isinstance(command, str) if given.shell is None else is_true(given.shell)
    if shell:
        # Python gives a list with shell=True to `sh -c LIST[0] LIST[1:]`, and so does OSWorld's guest.
        return command if isinstance(command, str) else ["/bin/sh", "-c", *command]
    if isinstance(command, list):
        return command
    try:
        return shlex.split(command)
    except ValueError as error:
        raise SetupError(f"the command cannot be split into words: {error}; give a list, or shell: true") from None


def _fill(text: str, context: SetupContext) -> str:
    width, height = context.settings.screen_width, context.settings.screen_height
    for name, value in (
        ("CLIENT_PASSWORD", context.settings.client_password),
        ("SCREEN_WIDTH_HALF", width // 2),
        ("SCREEN_HEIGHT_HALF", height // 2),
        ("SCREEN_WIDTH", width),
        ("SCREEN_HEIGHT", height),
    ):
        text = text.replace(f"{{{name}}}", str(value))
    return text


def hidden(text: str, context: SetupContext) -> str:
    """A text without the desktop's password, since a shell or a guest may repeat a command in its error.

    OSWorld's usual one is no secret, and an ordinary word.
    """
    secret = context.settings.client_password
    return text if secret in ("", "password") else text.replace(secret, "***")


async def _repeat(
    desktop: Desktop, command: list[str] | str, until: Until, shown: str, context: SetupContext
) -> RunResult:
    deadline = running_time() + UNTIL_S
    refusals = 0
    while True:
        last = ""
        try:
            done = await desktop.run(command, timeout=RUN_S)
        except GuestError as error:
            refusals += 1
            if refusals >= _REFUSALS:
                raise
            last = hidden(str(error), context)
        else:
            if _is_so(done, until):
                return done
            last = f"it ended with {done.returncode}"
        if running_time() >= deadline:
            raise SetupError(f"{shown!r} was repeated for {UNTIL_S:g} s, and its `until` was never so; last: {last}")
        await asyncio.sleep(_AGAIN_S)


def _is_so(done: RunResult, until: Until) -> bool:
    return (
        (until.returncode is not None and done.returncode == until.returncode)
        or (until.stdout is not None and until.stdout in done.output)
        or (until.stderr is not None and until.stderr in done.error)
    )
