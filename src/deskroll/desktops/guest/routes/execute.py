"""Running programs: commands, Python, shell scripts."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from pathlib import Path

import msgspec
from aiohttp import web

from deskroll.desktops.guest.machine import Machine
from deskroll.desktops.guest.processes import ProgramTimeout
from deskroll.desktops.guest.requests import Command, read_json, time_left
from deskroll.desktops.guest.routes import MACHINE
from deskroll.desktops.x11 import windows

routes = web.RouteTableDef()
COMMAND_TIMEOUT_S = 120.0
"""For a command, unless the client says how long it will wait."""
PYTHON_TIMEOUT_S = 30.0
MAX_TIMEOUT_S = 3600.0


class Verification(msgspec.Struct):
    """What must be true after a command, in a request."""

    window_exists: str | None = None
    command_success: str | None = None


class VerifiedCommand(Command):
    """A command with what must be true after it."""

    verification: Verification | None = None
    max_wait_time: float = 10.0
    check_interval: float = 1.0


class PythonCode(msgspec.Struct):
    """Body of /run_python."""

    code: str = ""


class BashScript(msgspec.Struct):
    """Body of /run_bash_script."""

    script: str = ""
    timeout: float = 100.0
    working_dir: str | None = None


@routes.post("/execute")
@routes.post("/setup/execute")
async def execute(request: web.Request) -> web.Response:
    """Run a command to its end."""
    return await _execute(request, await read_json(request, Command), None)


@routes.post("/execute_with_verification")
@routes.post("/setup/execute_with_verification")
async def execute_with_verification(request: web.Request) -> web.Response:
    """Run a command, then wait until what it should bring about is there."""
    command = await read_json(request, VerifiedCommand)
    return await _execute(request, command, command)


async def _execute(request: web.Request, command: Command, wanted: VerifiedCommand | None) -> web.Response:
    machine, left = request.app[MACHINE], time_left(request)
    # A little less than the client waits, so that it hears what ran too long.
    limit = COMMAND_TIMEOUT_S if left is None else left * 0.95
    try:
        result = await machine.programs.run(command.resolve(str(machine.session.home)), limit)
    except (OSError, ProgramTimeout, ValueError) as error:
        return _error(str(error))
    told = {"output": result.output, "error": result.error, "returncode": result.returncode}
    if wanted is None or wanted.verification is None:
        return web.json_response({"status": "success", **told})
    began = time.monotonic()
    wait = min(max(wanted.max_wait_time, 0.0), MAX_TIMEOUT_S)
    while not await _verify(machine, wanted.verification):
        if time.monotonic() - began >= wait:
            failed = {"status": "verification_failed", "verification": "failed", "wait_time": wanted.max_wait_time}
            return web.json_response({**failed, **told}, status=500)
        await asyncio.sleep(min(max(wanted.check_interval, 0.02), 0.1))
    passed = {"status": "success", "verification": "passed", "wait_time": time.monotonic() - began}
    return web.json_response({**passed, **told})


@routes.post("/setup/launch")
async def launch(request: web.Request) -> web.Response:
    """Start a program and leave it running."""
    command = await read_json(request, Command)
    machine = request.app[MACHINE]
    words = command.resolve(str(machine.session.home))
    try:
        await machine.programs.launch(words)
    except (OSError, ValueError) as error:
        return _error(str(error))
    return web.Response(text=f"{words if isinstance(words, str) else ' '.join(words)} launched successfully")


@routes.post("/run_python")
async def run_python(request: web.Request) -> web.Response:
    """Run Python source as a file of its own."""
    body = await read_json(request, PythonCode)
    if not body.code:
        return web.json_response({"status": "error", "message": "Code not supplied!"}, status=400)
    machine = request.app[MACHINE]
    path = _script_file("python_exec", ".py", body.code)
    failed = {"status": "error", "need_more": False, "output": None}
    try:
        result = await machine.programs.run(["/usr/bin/python3", str(path)], PYTHON_TIMEOUT_S)
    except ProgramTimeout:
        message = "Execution timeout: Code took too long to execute"
        return web.json_response({**failed, "message": message, "error": "TimeoutExpired"}, status=500)
    except OSError as error:
        return web.json_response({**failed, "message": f"Execution error: {error}", "error": str(error)}, status=500)
    finally:
        path.unlink(missing_ok=True)
    error_text = result.error or (f"Process exited with code {result.returncode}" if result.returncode else "")
    answer = {
        "status": "error" if result.returncode else "success",
        "message": "\n".join(part for part in (result.output, error_text) if part),
        "need_more": False,
        "output": result.output,
        "error": error_text,
        "return_code": result.returncode,
    }
    return web.json_response(answer)


@routes.post("/run_bash_script")
async def run_bash_script(request: web.Request) -> web.Response:
    """Run a bash script; both its streams come back as `output`."""
    body = await read_json(request, BashScript)
    machine = request.app[MACHINE]
    if not body.script:
        return _script_answer("error", "Script not supplied!", -1, 400)
    folder = machine.session.home
    if body.working_dir:
        folder = machine.expand(body.working_dir)
        if not folder.is_dir():
            return _script_answer("error", f"Working directory does not exist: {folder}", -1, 400)
    path = _script_file("bash_exec", ".sh", body.script)
    timeout = min(max(body.timeout, 0.0), MAX_TIMEOUT_S)
    try:
        result = await machine.programs.run(["/bin/bash", str(path)], timeout, cwd=folder, merge=True)
    except ProgramTimeout:
        return _script_answer("error", f"Script execution timed out after {body.timeout:g} seconds", -1, 500)
    except OSError as error:
        return _script_answer("error", f"Failed to execute script: {error}", -1, 500)
    finally:
        path.unlink(missing_ok=True)
    return _script_answer("error" if result.returncode else "success", result.output, result.returncode, 200)


async def _verify(machine: Machine, verification: Verification) -> bool:
    if verification.window_exists is not None:
        wanted = verification.window_exists.lower()
        titles = [window.title.lower() for window in await machine.on_display(windows.list_windows)]
        if not any(wanted in title for title in titles):
            return False
    if verification.command_success is not None:
        try:
            return (await machine.programs.run(verification.command_success, 5.0)).returncode == 0
        except (OSError, ProgramTimeout):
            return False
    return True


def _script_file(prefix: str, suffix: str, text: str) -> Path:
    path = Path("/tmp", f"{prefix}_{secrets.token_hex(8)}{suffix}")  # noqa: S108  (the desktop's own, private)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
    with os.fdopen(file, "w", encoding="utf-8", errors="surrogatepass") as out:
        out.write(text)
    return path


def _error(message: str) -> web.Response:
    return web.json_response({"status": "error", "message": message}, status=500)


def _script_answer(status: str, output: str, code: int, http: int) -> web.Response:
    return web.json_response({"status": status, "output": output, "error": "", "returncode": code}, status=http)
