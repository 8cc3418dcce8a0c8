"""deskroll's own endpoints: what this guest is, its health, a whole step in one round trip, and a way to any port."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from deskroll import __version__
from deskroll.desktops.guest.forward import carry
from deskroll.desktops.guest.requests import BadRequest, ClipboardText, read_json, read_number, read_step
from deskroll.desktops.guest.room import check_room
from deskroll.desktops.guest.routes import MACHINE
from deskroll.desktops.x11 import clipboard, windows

routes = web.RouteTableDef()


@routes.get("/deskroll")
async def about(request: web.Request) -> web.Response:
    """What this guest is: a client that finds it here uses /step."""
    machine = request.app[MACHINE]
    info = {"id": machine.session.settings.id, "version": __version__, "width": machine.width, "height": machine.height}
    return web.json_response(info)


@routes.get("/health")
async def health(request: web.Request) -> web.Response:
    """200 when every part is alive, the X server answers and there is room for files and in memory, else 503."""
    machine = request.app[MACHINE]
    await machine.check()
    check_room((str(machine.session.home), "/tmp"))  # noqa: S108
    return web.json_response({"status": "ok", "parts": machine.session.part_pids()})


@routes.post("/step")
async def step(request: web.Request) -> web.Response:
    """Act, settle, look. Answers with a StepResult as MessagePack, since it holds a picture."""
    body = await read_step(request)
    if body.observe.image not in ("png", "jpeg"):
        raise BadRequest(f"observe.image is {body.observe.image!r}; allowed: png, jpeg")
    result = await request.app[MACHINE].step(body.actions, body.settle, body.observe)
    return web.Response(body=msgspec.msgpack.encode(result), content_type="application/msgpack")


@routes.get("/windows")
async def list_windows(request: web.Request) -> web.Response:
    """All windows."""
    found = await request.app[MACHINE].on_display(windows.list_windows)
    return web.Response(body=msgspec.json.encode(found), content_type="application/json")


@routes.get("/clipboard")
async def read_clipboard(request: web.Request) -> web.Response:
    """The text that was copied last."""
    text = await clipboard.read(request.app[MACHINE].session.env)
    return web.json_response({"text": text})


@routes.post("/clipboard")
async def write_clipboard(request: web.Request) -> web.Response:
    """Put text where programs paste from."""
    body = await read_json(request, ClipboardText)
    await clipboard.write(body.text, request.app[MACHINE].session.env)
    return web.json_response({"status": "success"})


@routes.get("/forward/{port}")
async def forward(request: web.Request) -> web.StreamResponse:
    """Carry one TCP connection to a port inside the desktop, as a WebSocket of binary messages."""
    port = read_number(request.match_info["port"], "port", 1, 65535)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as error:
        raise BadRequest(f"nothing answers on port {port} of this desktop: {error}", status=502) from error
    # 0: no limit on a message; what is sent is passed on, never kept.
    socket = web.WebSocketResponse(max_msg_size=0, compress=False)
    try:
        await socket.prepare(request)
        await carry(socket, reader, writer)
    finally:
        writer.close()
    return socket
