"""What a simulated desktop answers: the paths, bodies and answers of the real guest (`guest/routes`).

Guarantees: a request's body is read before the desktop is looked at, so that nothing of it reaches a later generation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import aiohttp
import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from deskroll import __version__
from deskroll.actions import Action
from deskroll.desktops.base import Observe, Settle
from deskroll.desktops.guest.requests import BadRequest, Command, read_form, read_json
from deskroll.desktops.providers.sim.contents import HOME, MAX_FILE
from deskroll.desktops.providers.sim.desktop import SimDesktop
from deskroll.desktops.providers.sim.step import step

Endpoint = Callable[[SimDesktop, web.Request], Awaitable[web.Response]]
UPLOAD = "/setup/upload"
MAX_ACTIONS = 200
_MULTIPART = "file_path and file_data are required, as multipart/form-data"


class _Step(msgspec.Struct):
    actions: list[Action] = msgspec.field(default_factory=list)
    settle: Settle | None = None
    observe: Observe = Observe()


class _Text(msgspec.Struct):
    text: str


class _Path(msgspec.Struct):
    path: str = ""


class _WindowName(msgspec.Struct):
    window_name: str = ""
    strict: bool = False
    by_class: bool = False


def as_json(value: object, status: int = 200) -> web.Response:
    """An answer as JSON."""
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


async def _about(desktop: SimDesktop, _request: web.Request) -> web.Response:
    spec = desktop.spec
    return as_json({"id": desktop.id, "version": __version__, "width": spec.width, "height": spec.height})


async def _health(desktop: SimDesktop, _request: web.Request) -> web.Response:
    await desktop.check()
    return as_json({"status": "ok", "parts": {}})


async def _screenshot(desktop: SimDesktop, request: web.Request) -> web.Response:
    _only_png(request.query.get("image", "png"), "image")
    return web.Response(body=desktop.contents.screen.png(), content_type="image/png")


async def _do_step(desktop: SimDesktop, request: web.Request) -> web.Response:
    body = await read_json(request, _Step)
    if len(body.actions) > MAX_ACTIONS:
        raise BadRequest(f"actions holds {len(body.actions)} actions; at most {MAX_ACTIONS}")
    _only_png(body.observe.image, "observe.image")
    result = await step(desktop, body.actions, body.settle, body.observe)
    return web.Response(body=msgspec.msgpack.encode(result), content_type="application/msgpack")


async def _execute(desktop: SimDesktop, request: web.Request) -> web.Response:
    desktop.contents.remember((await read_json(request, Command)).resolve(HOME))
    return as_json({"status": "success", "output": "", "error": "", "returncode": 0})


async def _launch(desktop: SimDesktop, request: web.Request) -> web.Response:
    line = desktop.contents.launch((await read_json(request, Command)).resolve(HOME))
    return web.Response(text=f"{line} launched successfully")


async def _activate(desktop: SimDesktop, request: web.Request) -> web.Response:
    body = await read_json(request, _WindowName)
    if not body.window_name:
        raise BadRequest("window_name required")
    desktop.contents.activate(body.window_name, strict=body.strict, by_class=body.by_class)
    return web.Response(text="Window activated successfully")


async def _close(desktop: SimDesktop, request: web.Request) -> web.Response:
    body = await read_json(request, _WindowName)
    if not body.window_name:
        raise BadRequest("window_name required")
    desktop.contents.close(body.window_name, strict=body.strict, by_class=body.by_class)
    return web.Response(text="Window closed successfully.")


async def _open_file(desktop: SimDesktop, request: web.Request) -> web.Response:
    body = await read_json(request, _Path)
    if not body.path:
        raise BadRequest("Path not supplied!")
    desktop.contents.open_file(body.path)
    return web.Response(text="File opened and window activated successfully")


async def _windows(desktop: SimDesktop, _request: web.Request) -> web.Response:
    return as_json(desktop.contents.windows)


async def _read_clipboard(desktop: SimDesktop, _request: web.Request) -> web.Response:
    return as_json({"text": desktop.contents.clipboard})


async def _write_clipboard(desktop: SimDesktop, request: web.Request) -> web.Response:
    desktop.contents.clipboard = (await read_json(request, _Text)).text
    return as_json({"status": "success"})


async def _read_file(desktop: SimDesktop, request: web.Request) -> web.Response:
    data = desktop.contents.read_file(await read_form(request, "file_path"))
    return web.Response(body=data, content_type="application/octet-stream")


async def _upload(desktop: SimDesktop, request: web.Request) -> web.Response:
    epoch, name, data = desktop.epoch, "", None
    try:
        async for field in await request.multipart():
            if isinstance(field, aiohttp.BodyPartReader) and field.name == "file_path":
                name = (await field.read(decode=True)).decode(errors="surrogateescape")
            elif isinstance(field, aiohttp.BodyPartReader) and field.name == "file_data":
                data = await _read_part(field)
    except (ValueError, AssertionError, KeyError, HttpProcessingError) as error:
        raise BadRequest(f"{_MULTIPART}; the body is broken: {error}") from None
    if not name or data is None:
        raise BadRequest(_MULTIPART)
    desktop.still(epoch)
    desktop.contents.write_file(name, data)
    return web.Response(text=f"File Uploaded: {len(data)} bytes")


async def _read_part(field: aiohttp.BodyPartReader) -> bytes:
    data = bytearray()
    while chunk := await field.read_chunk(256 * 1024):
        data += chunk
        if len(data) > MAX_FILE:
            raise BadRequest(f"file_data has more than {MAX_FILE} bytes", status=413)
    return bytes(data)


async def _screen_size(desktop: SimDesktop, _request: web.Request) -> web.Response:
    return as_json({"width": desktop.spec.width, "height": desktop.spec.height})


async def _platform(_desktop: SimDesktop, _request: web.Request) -> web.Response:
    return web.Response(text="Linux")


async def _cursor_position(desktop: SimDesktop, _request: web.Request) -> web.Response:
    return as_json(desktop.contents.screen.pointer)


async def _accessibility(desktop: SimDesktop, _request: web.Request) -> web.Response:
    return as_json({"AT": desktop.contents.tree()})


async def _terminal(_desktop: SimDesktop, _request: web.Request) -> web.Response:
    return as_json({"output": None, "status": "success"})


def _only_png(image: str, field: str) -> None:
    if image != "png":
        raise BadRequest(f"{field} is {image[:50]!r}; allowed on simulated desktops: png")


ENDPOINTS: Mapping[tuple[str, str], Endpoint] = {
    ("GET", "/deskroll"): _about,
    ("GET", "/health"): _health,
    ("GET", "/screenshot"): _screenshot,
    ("POST", "/step"): _do_step,
    ("POST", "/execute"): _execute,
    ("POST", "/setup/execute"): _execute,
    ("POST", "/setup/launch"): _launch,
    ("POST", "/setup/activate_window"): _activate,
    ("POST", "/setup/close_window"): _close,
    ("POST", "/setup/open_file"): _open_file,
    ("GET", "/windows"): _windows,
    ("GET", "/clipboard"): _read_clipboard,
    ("POST", "/clipboard"): _write_clipboard,
    ("POST", "/file"): _read_file,
    ("POST", UPLOAD): _upload,
    ("POST", "/screen_size"): _screen_size,
    ("GET", "/platform"): _platform,
    ("GET", "/cursor_position"): _cursor_position,
    ("GET", "/accessibility"): _accessibility,
    ("GET", "/terminal"): _terminal,
}
