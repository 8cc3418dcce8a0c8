"""Reading requests: JSON bodies and forms, with errors that say which field is wrong and what it may be.

The bodies that a guest and a simulated desktop take alike are here, and how either refuses one.
"""

from __future__ import annotations

import shlex
from typing import TypeVar

import msgspec
from aiohttp import web

from deskroll.actions import Action
from deskroll.desktops.base import Observe, Settle
from deskroll.errors import DeathCause

T = TypeVar("T")
MAX_BODY = 16 * 1024 * 1024
"""Bytes of a JSON or form body; uploads are streamed and have a limit of their own."""
MAX_ACTIONS = 200
"""Actions of one step."""
MULTIPART = "file_path and file_data are required, as multipart/form-data"


class BadRequest(Exception):
    """A request that cannot be served as it is; answered with `status` and the message."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def refuse(status: int, message: str, *, lost: DeathCause | None = None) -> web.Response:
    """The answer that something was not done; `lost`: and will not be, as the desktop died of this."""
    body: dict[str, object] = {"status": "error", "message": message, "error": message}
    if lost is not None:
        body |= {"lost": True, "cause": lost}
    return web.json_response(body, status=status)


TIMEOUT_HEADER = "Deskroll-Timeout"
"""Seconds that the client will wait; the server gives up then too, so that nothing goes on unheard."""
LEASE_HEADER = "Deskroll-Lease"
"""Names the lease that the client acts for, so that a guest can tell whose request it was."""
MAX_TIMEOUT_S = 86_400.0
LOCAL_HOST = "desktop"
"""What clients on a unix socket call the host."""


def read_number(text: str, name: str, low: int, high: int) -> int:
    """A whole number that a request names in its address."""
    if text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high:
        return int(text)
    raise BadRequest(f"{name} is {text[:50]!r}; allowed: {low} to {high}")


def time_left(request: web.Request) -> float | None:
    """How long the client will wait, None when it does not say."""
    value = request.headers.get(TIMEOUT_HEADER)
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        raise BadRequest(f"{TIMEOUT_HEADER} is {value[:50]!r}; it must be a number of seconds") from None
    if not 0 < seconds <= MAX_TIMEOUT_S:
        raise BadRequest(f"{TIMEOUT_HEADER} is {value[:50]!r}; allowed: above 0, up to {MAX_TIMEOUT_S:g}")
    return seconds


async def read_json(request: web.Request, kind: type[T]) -> T:
    """The JSON body as a record; raises `BadRequest` naming the field that is wrong."""
    body = await request.read()
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise BadRequest(f"{request.path}: {error}") from None
    except RecursionError:
        raise BadRequest(f"{request.path}: the body is nested too deeply") from None
    except msgspec.DecodeError as error:
        raise BadRequest(f"{request.path}: the body is not valid JSON: {error}") from None


async def read_form(request: web.Request, field: str) -> str:
    """One text field of a form body."""
    try:
        form = await request.post()
    except (ValueError, AssertionError) as error:
        raise BadRequest(f"{request.path}: the body is not a valid form: {error}") from None
    value = form.get(field)
    if not isinstance(value, str):
        raise BadRequest(f"{field} is required", 400)
    return value


class Command(msgspec.Struct):
    """A command as OSWorld's clients send it: a list, or a string that is split or given to the shell."""

    command: list[str] | str = msgspec.field(default_factory=list)
    shell: bool | str = False

    def resolve(self, home: str) -> list[str] | str:
        """What to run: a list of words, or a string for the shell."""
        shell = self.shell if isinstance(self.shell, bool) else self.shell.lower() == "true"
        command = self.command
        if not command or command == [""]:
            raise BadRequest("command is empty; give a list of words, or a string")
        if "\0" in (command if isinstance(command, str) else "".join(command)):
            raise BadRequest("command must not hold NUL bytes")
        if shell:
            # As Python's subprocess does with a list and shell=True: upstream's clients rely on it.
            return command if isinstance(command, str) else ["/bin/sh", "-c", *command]
        try:
            words = shlex.split(command) if isinstance(command, str) else command
        except ValueError as error:
            raise BadRequest(f"command cannot be split into words: {error}") from None
        return [f"{home}{word[1:]}" if word.startswith("~/") else word for word in words]


class StepRequest(msgspec.Struct):
    """Body of /step."""

    actions: list[Action] = msgspec.field(default_factory=list)
    settle: Settle | None = None
    observe: Observe = Observe()


async def read_step(request: web.Request) -> StepRequest:
    """The body of /step, unless it asks for too much."""
    body = await read_json(request, StepRequest)
    if len(body.actions) > MAX_ACTIONS:
        raise BadRequest(f"actions holds {len(body.actions)} actions; at most {MAX_ACTIONS}")
    return body


class ClipboardText(msgspec.Struct):
    """Body of /clipboard, and the answer to who reads it."""

    text: str


class PathRequest(msgspec.Struct):
    """A body that names a path."""

    path: str = ""


async def read_path(request: web.Request) -> str:
    """The path that a body must name."""
    body = await read_json(request, PathRequest)
    if not body.path:
        raise BadRequest("Path not supplied!")
    return body.path


class WindowRequest(msgspec.Struct):
    """Body of activate_window and close_window."""

    window_name: str = ""
    strict: bool = False
    by_class: bool = False


async def read_window(request: web.Request) -> WindowRequest:
    """The window that a body must name."""
    body = await read_json(request, WindowRequest)
    if not body.window_name:
        raise BadRequest("window_name required")
    return body
