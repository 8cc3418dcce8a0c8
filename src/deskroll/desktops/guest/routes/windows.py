"""Windows, wallpaper, opening files: the parts of /setup that act on the screen."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from aiohttp import web
from Xlib.display import Display

from deskroll.desktops.base import Window
from deskroll.desktops.guest.machine import Machine
from deskroll.desktops.guest.requests import BadRequest, read_path, read_window
from deskroll.desktops.guest.routes import MACHINE
from deskroll.desktops.x11 import wallpaper, windows

routes = web.RouteTableDef()
OPEN_TIMEOUT_S = 60.0
"""How long a program may take to show the window of a file; OSWorld's own server waits half an hour."""


@routes.post("/setup/activate_window")
async def activate_window(request: web.Request) -> web.Response:
    """Bring a window to the front."""
    await _with_window(request, windows.activate)
    return web.Response(text="Window activated successfully")


@routes.post("/setup/close_window")
async def close_window(request: web.Request) -> web.Response:
    """Ask a window to close."""
    await _with_window(request, windows.close)
    return web.Response(text="Window closed successfully.")


async def _with_window(request: web.Request, act: Callable[[Display, Window], object]) -> None:
    body = await read_window(request)
    machine = request.app[MACHINE]

    def find_and_act(display: Display) -> bool:
        window = windows.find(display, body.window_name, strict=body.strict, by_class=body.by_class)
        if window is not None:
            act(display, window)
        return window is not None

    if not await machine.on_display(find_and_act, timeout=15.0):
        raise BadRequest(f"no window matches {body.window_name!r}", status=404)


@routes.post("/setup/open_file")
async def open_file(request: web.Request) -> web.Response:
    """Open a file with its program, or start a program by name; answers when its window is there."""
    asked = await read_path(request)
    machine = request.app[MACHINE]
    path = machine.expand(asked)
    if path.exists():
        command, name = ["gio", "open", str(path)], path.name
    elif shutil.which(asked, path=machine.session.env["PATH"]):
        command, name = [asked], asked
    else:
        raise BadRequest(f"Application/file not found: {asked}", status=404)
    try:
        await machine.programs.launch(command)
    except OSError as error:
        raise BadRequest(f"Failed to open {asked}. Error: {error}", status=500) from error
    if not await _window_appears(machine, name):
        raise BadRequest(f"Failed to find window for {name} within {OPEN_TIMEOUT_S:g} seconds.", status=500)
    return web.Response(text="File opened and window activated successfully")


async def _window_appears(machine: Machine, name: str) -> bool:
    deadline = time.monotonic() + OPEN_TIMEOUT_S
    stem = Path(name).stem or name
    while time.monotonic() < deadline:
        for window in await machine.on_display(windows.list_windows):
            if name in window.title or stem in window.title or stem.lower() in window.wm_class.lower():
                await machine.on_display(partial(windows.activate, window=window), timeout=15.0)
                return True
        await asyncio.sleep(0.05)
    return False


@routes.post("/setup/change_wallpaper")
async def change_wallpaper(request: web.Request) -> web.Response:
    """Show a picture behind all windows."""
    machine = request.app[MACHINE]
    path = machine.expand(await read_path(request))
    if not path.exists():
        raise BadRequest(f"File not found: {path}", status=404)
    try:
        picture = await asyncio.to_thread(wallpaper.load, path, machine.width, machine.height)
    except (OSError, ValueError) as error:
        raise BadRequest(f"Failed to change wallpaper. Error: {error}", status=500) from error
    await machine.on_display(lambda display: wallpaper.show(display, picture), timeout=15.0)
    machine.wallpaper = path
    return web.Response(text="Wallpaper changed successfully")


@routes.post("/wallpaper")
async def get_wallpaper(request: web.Request) -> web.StreamResponse:
    """The file of the picture that was set last."""
    path = request.app[MACHINE].wallpaper
    if path is None or not path.is_file():
        raise BadRequest("Wallpaper file not found", status=404)
    return web.FileResponse(path, headers={"Content-Type": "image/png"})
