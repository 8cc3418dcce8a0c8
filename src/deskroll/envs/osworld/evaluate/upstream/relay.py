"""What a job in a sandbox reaches: some of its desktop's guest, and two ports inside of the desktop.

Of the guest it is served what upstream's getters use: screen, tree, terminal, windows, files to read, and programs,
commands and Python to run, which can change anything in that desktop. Not served: other set-up steps, actions,
recordings, sessions.

Guarantees: requests go through the desktop's own connection, so they end with its lease. A desktop that fails while it
is asked, or says that it did, and a command that was cut off, by a signal or by its time limit, are remembered
(`failure`): upstream's getters keep that to themselves and would score 0.
A file that is too large to be judged is answered with 413 and words, whatever the guest says of it.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
from aiohttp import web

from deskroll.desktops.base import signal_of
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.envs.osworld.evaluate.running import LARGEST_FILE, cut_off
from deskroll.errors import (
    CommandTimeout,
    DesktopError,
    DesktopLost,
    DesktopTimeout,
    EvaluatorError,
    GuestError,
    LeaseLost,
    plain,
)
from deskroll.host.relay import carry, serve_connections

SERVER_PORT = 5000
_FORWARDED = (9222, 8080)
"""Chromium's debugging, VLC."""
_REQUEST_S = 130.0
_SERVED = {
    "/accessibility", "/cursor_position", "/desktop_path", "/execute", "/file", "/list_directory", "/platform",
    "/run_python", "/screen_size", "/screenshot", "/setup/launch", "/terminal", "/wallpaper", "/window_size",
}  # fmt: skip
_UNREACHABLE = (401, 502, 503)
"""Answers that are of no guest, or of one that takes us for somebody else: nothing was looked at."""
_TOO_LARGE = 413
_RUNS = ("/execute", "/run_python")


class _Ended(msgspec.Struct):
    """How what was run came to its end, in the words of both endpoints."""

    returncode: int = 0
    return_code: int = 0


class Relay:
    """The guest's server, served at a socket."""

    def __init__(self, desktop: GuestDesktop) -> None:
        self._desktop = desktop
        self.failure: DesktopError | EvaluatorError | None = None

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Pass one request on."""
        if request.path not in _SERVED:
            return web.json_response({"error": f"evaluators have no {request.path}"}, status=404)
        body: bytes | aiohttp.FormData | None = None
        what = request.path
        if request.content_type in ("application/x-www-form-urlencoded", "multipart/form-data"):
            form = await request.post()
            body = aiohttp.FormData({name: value for name, value in form.items() if isinstance(value, str)})
            what = plain(str(form.get("file_path", what)))
        elif request.can_read_body:
            body = await request.read()
        try:
            status, answer = await self._desktop.exchange(
                request.method, request.path_qs, timeout=_REQUEST_S, body=body, max_answer=LARGEST_FILE
            )
        except (DesktopLost, DesktopTimeout, LeaseLost) as error:
            return self._fail(error)
        except DesktopError:  # the desktop is well; its answer was cut off
            status, answer = _TOO_LARGE, b""
        if status == _TOO_LARGE:
            return web.Response(status=status, text=f"{what} has more than {LARGEST_FILE} bytes")
        if status != 200:
            meaning = await self._desktop.failure(request.method, request.path, status, answer)
            if not isinstance(meaning, GuestError) or status in _UNREACHABLE:
                return self._fail(meaning)
            if isinstance(meaning, CommandTimeout):
                return self._fail(EvaluatorError(plain(str(meaning))))
        elif request.path in _RUNS and (signal := _signal_of(answer)):
            return self._fail(EvaluatorError(cut_off(self._desktop.id, _words_of(body), signal)))
        return web.Response(status=status, body=answer)

    def _fail(self, error: DesktopError | EvaluatorError) -> web.Response:
        self.failure = self.failure or error
        return web.json_response({"error": "this cannot be judged"}, status=502)


def _signal_of(answer: bytes) -> str:
    try:
        ended = msgspec.json.decode(answer, type=_Ended)
    except msgspec.MsgspecError:  # no guest's answer: upstream's getters make of it what they can
        return ""
    return signal_of(ended.returncode) or signal_of(ended.return_code)


def _words_of(body: bytes | aiohttp.FormData | None) -> str:
    return body.decode(errors="replace") if isinstance(body, bytes) else ""


@asynccontextmanager
async def serve_desktop(desktop: GuestDesktop, folder: Path, files: Mapping[str, bytes]) -> AsyncIterator[Relay]:
    """Serve a desktop and the files of a job in a folder, for as long as the block lasts."""
    relay = Relay(desktop)
    async with AsyncExitStack() as stack:
        stack.callback(_clean, folder)
        _lay_out(folder / "files", files)
        runner = web.ServerRunner(web.Server(relay.handle))
        stack.push_async_callback(runner.cleanup)
        await runner.setup()
        await web.UnixSite(runner, str(_open(folder, SERVER_PORT))).start()
        for port in _FORWARDED:
            place = await stack.enter_async_context(desktop.forward(port))
            await stack.enter_async_context(_forward(place, _open(folder, port)))
        for each in folder.glob("*.sock"):
            each.chmod(0o666)
        yield relay


def _open(folder: Path, port: int) -> Path:
    return folder / f"{port}.sock"


def _clean(folder: Path) -> None:
    for each in folder.glob("*.sock"):
        each.unlink(missing_ok=True)
    shutil.rmtree(folder / "files", ignore_errors=True)


def _lay_out(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    for name, data in files.items():
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()) or path == folder.resolve():
            raise EvaluatorError(f"dest is {plain(name)!r}, which is not the name of a file below the cache")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o644)


def _forward(place: tuple[str, int], path: Path) -> AbstractAsyncContextManager[asyncio.Server]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await carry((reader, writer), await asyncio.open_connection(*place))

    return serve_connections(serve, path=str(path))
