"""Looking: screen, tree, terminal, pointer, sizes."""

from __future__ import annotations

import platform

from aiohttp import web

from deskroll.desktops.guest.requests import BadRequest, read_form, read_number
from deskroll.desktops.guest.routes import MACHINE
from deskroll.desktops.x11 import windows

routes = web.RouteTableDef()


@routes.get("/screenshot")
async def screenshot(request: web.Request) -> web.Response:
    """The screen with the pointer, as PNG (`?image=jpeg` for JPEG)."""
    image = request.query.get("image", "png")
    if image not in ("png", "jpeg"):
        raise BadRequest(f"image is {image!r}; allowed: png, jpeg")
    return web.Response(body=await request.app[MACHINE].look(image), content_type=f"image/{image}")


@routes.get("/accessibility")
async def accessibility(request: web.Request) -> web.Response:
    """The accessibility tree as XML (`?in_flight=1` asks programs one question at a time, to compare)."""
    in_flight = read_number(request.query.get("in_flight", "64"), "in_flight", 1, 1024)
    return web.json_response({"AT": await request.app[MACHINE].read_tree(in_flight)})


@routes.get("/terminal")
async def terminal(request: web.Request) -> web.Response:
    """Text of the focused terminal."""
    return web.json_response({"output": await request.app[MACHINE].read_terminal(), "status": "success"})


@routes.get("/platform")
async def system(_request: web.Request) -> web.Response:
    """The operating system's name."""
    return web.Response(text=platform.system())


@routes.get("/cursor_position")
async def cursor_position(request: web.Request) -> web.Response:
    """Where the pointer is."""
    return web.json_response(await request.app[MACHINE].pointer())


@routes.post("/screen_size")
async def screen_size(request: web.Request) -> web.Response:
    """Width and height of the screen."""
    machine = request.app[MACHINE]
    return web.json_response({"width": machine.width, "height": machine.height})


@routes.post("/window_size")
async def window_size(request: web.Request) -> web.Response:
    """Width and height of a program's window, by its class."""
    name = await read_form(request, "app_class_name")
    size = await request.app[MACHINE].on_display(lambda display: windows.window_size(display, name))
    if size is None:
        raise BadRequest(f"no window has the class {name!r}", status=404)
    return web.json_response({"width": size[0], "height": size[1]})
