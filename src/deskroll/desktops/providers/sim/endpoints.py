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
from deskroll.desktops.guest import requests
from deskroll.desktops.guest.requests import BadRequest
from deskroll.desktops.providers.sim.contents import HOME, MAX_FILE
from deskroll.desktops.providers.sim.desktop import SimDesktop
from deskroll.desktops.providers.sim.step import step

Endpoint = Callable[[SimDesktop, web.Request], Awaitable[web.Response]]
UPLOAD = "/setup/upload"


def _as_json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


async def _health(desktop: SimDesktop, _request: web.Request) -> web.Response:
    await desktop.check()
    return _as_json({"status": "ok", "parts": {}})


async def _screenshot(desktop: SimDesktop, request: web.Request) -> web.Response:
    _only_png(request.query.get("image", "png"), "image")
    return web.Response(body=desktop.contents.screen.png(), content_type="image/png")


async def _do_step(desktop: SimDesktop, request: web.Request) -> web.Response:
    body = await requests.read_step(request)
    _only_png(body.observe.image, "observe.image")
    result = await step(desktop, body.actions, body.settle, body.observe)
    return web.Response(body=msgspec.msgpack.encode(result), content_type="application/msgpack")


async def _execute(desktop: SimDesktop, request: web.Request) -> web.Response:
    command = await requests.read_json(request, requests.Command)
    desktop.contents.remember(command.resolve(HOME))
    return _as_json({"status": "success", "output": "", "error": "", "returncode": 0})


async def _launch(desktop: SimDesktop, request: web.Request) -> web.Response:
    command = await requests.read_json(request, requests.Command)
    line = desktop.contents.launch(command.resolve(HOME))
    return web.Response(text=f"{line} launched successfully")


async def _activate(desktop: SimDesktop, request: web.Request) -> web.Response:
    desktop.contents.activate(await requests.read_window(request))
    return web.Response(text="Window activated successfully")


async def _close(desktop: SimDesktop, request: web.Request) -> web.Response:
    desktop.contents.close(await requests.read_window(request))
    return web.Response(text="Window closed successfully.")


async def _open_file(desktop: SimDesktop, request: web.Request) -> web.Response:
    desktop.contents.open_file(await requests.read_path(request))
    return web.Response(text="File opened and window activated successfully")


async def _write_clipboard(desktop: SimDesktop, request: web.Request) -> web.Response:
    desktop.contents.clipboard = (await requests.read_json(request, requests.ClipboardText)).text
    return _as_json({"status": "success"})


async def _read_file(desktop: SimDesktop, request: web.Request) -> web.Response:
    data = desktop.contents.read_file(await requests.read_form(request, "file_path"))
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
        raise BadRequest(f"{requests.MULTIPART}; the body is broken: {error}") from None
    if not name or data is None:
        raise BadRequest(requests.MULTIPART)
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


async def _platform(_desktop: SimDesktop, _request: web.Request) -> web.Response:
    return web.Response(text="Linux")


def _only_png(image: str, field: str) -> None:
    if image != "png":
        raise BadRequest(f"{field} is {image[:50]!r}; allowed on simulated desktops: png")


def _telling(what: Callable[[SimDesktop], object]) -> Endpoint:
    async def tell(desktop: SimDesktop, _request: web.Request) -> web.Response:
        return _as_json(what(desktop))

    return tell


def _size(desktop: SimDesktop) -> dict[str, object]:
    return {"width": desktop.spec.width, "height": desktop.spec.height}


ENDPOINTS: Mapping[tuple[str, str], Endpoint] = {
    ("GET", "/deskroll"): _telling(lambda desktop: {"id": desktop.id, "version": __version__, **_size(desktop)}),
    ("POST", "/screen_size"): _telling(_size),
    ("GET", "/windows"): _telling(lambda desktop: desktop.contents.windows),
    ("GET", "/clipboard"): _telling(lambda desktop: {"text": desktop.contents.clipboard}),
    ("GET", "/cursor_position"): _telling(lambda desktop: desktop.contents.screen.pointer),
    ("GET", "/accessibility"): _telling(lambda desktop: {"AT": desktop.contents.tree()}),
    ("GET", "/terminal"): _telling(lambda _desktop: {"output": None, "status": "success"}),
    ("GET", "/health"): _health,
    ("GET", "/screenshot"): _screenshot,
    ("POST", "/step"): _do_step,
    ("POST", "/execute"): _execute,
    ("POST", "/setup/execute"): _execute,
    ("POST", "/setup/launch"): _launch,
    ("POST", "/setup/activate_window"): _activate,
    ("POST", "/setup/close_window"): _close,
    ("POST", "/setup/open_file"): _open_file,
    ("POST", "/clipboard"): _write_clipboard,
    ("POST", "/file"): _read_file,
    ("POST", UPLOAD): _upload,
    ("GET", "/platform"): _platform,
}
