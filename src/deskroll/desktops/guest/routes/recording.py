"""Recording the screen."""

from __future__ import annotations

from aiohttp import web

from deskroll.desktops.guest.machine import RecordingError
from deskroll.desktops.guest.requests import read_number
from deskroll.desktops.guest.routes import MACHINE

routes = web.RouteTableDef()
MAX_FPS = 30


@routes.post("/start_recording")
async def start_recording(request: web.Request) -> web.Response:
    """Start to record (`?fps=5`)."""
    rate = read_number(request.query.get("fps", "5"), "fps", 1, MAX_FPS)
    try:
        request.app[MACHINE].start_recording(rate)
    except RecordingError as error:
        return web.json_response({"status": "error", "message": str(error)}, status=400)
    return web.json_response({"status": "success", "message": "Started recording successfully."})


@routes.post("/end_recording")
async def end_recording(request: web.Request) -> web.StreamResponse:
    """Stop, and return the video."""
    try:
        path = await request.app[MACHINE].stop_recording()
    except RecordingError as error:
        return web.json_response({"status": "error", "message": str(error)}, status=400)
    return web.FileResponse(path, headers={"Content-Type": "video/mp4"})
