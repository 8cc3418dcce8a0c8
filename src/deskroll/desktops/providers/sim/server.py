"""SimServer: HTTP for all desktops of a world, on one unix socket in a private folder.

Which desktop a request is for, its bearer token says. Guarantees: every request is answered as the real guest would,
by a result or by a status and a message, except where the desktop is wedged: such a request stays open until the
client gives up or the desktop is reset.
"""

from __future__ import annotations

import logging
import shutil
from contextlib import AsyncExitStack
from pathlib import Path

from aiohttp import web

from deskroll.desktops.guest.requests import LEASE_HEADER, BadRequest, refuse
from deskroll.desktops.providers.sim.contents import MAX_FILE
from deskroll.desktops.providers.sim.endpoints import ENDPOINTS, UPLOAD
from deskroll.desktops.providers.sim.world import SimWorld
from deskroll.errors import DesktopError, DesktopLost
from deskroll.host.runtime_folder import make_scratch_folder

_BACKLOG = 4096
"""Connections that may wait: beyond, a unix socket refuses at once, and thousands of holders can come together."""
_SHUTDOWN_S = 1.0
_log = logging.getLogger(__name__)


class SimServer:
    """The one socket of a provider. Use with `async with`."""

    def __init__(self, world: SimWorld) -> None:
        self._world = world
        self._folder: Path | None = None
        self._open = AsyncExitStack()

    @property
    def endpoint(self) -> str:
        """Where desktops answer, as an `Address` has it."""
        if self._folder is None:
            raise DesktopError("the server of the simulated desktops is not open: use the provider with `async with`")
        return f"unix:{self._folder / 'guest.sock'}"

    async def __aenter__(self) -> SimServer:
        app = web.Application(client_max_size=MAX_FILE)
        app.router.add_route("*", "/{path:.*}", self._answer)
        # A client that gives up ends its request, as it would end with a real connection.
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_S)
        async with AsyncExitStack() as stack:
            folder = make_scratch_folder("sim", "guest.sock")
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            stack.push_async_callback(runner.cleanup)
            await runner.setup()
            await web.UnixSite(runner, str(folder / "guest.sock"), backlog=_BACKLOG).start()
            self._folder, self._open = folder, stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._folder = None
        await self._open.aclose()

    async def _answer(self, request: web.Request) -> web.Response:
        try:
            return await self._serve(request)
        except DesktopLost as error:
            return refuse(503, str(error), lost=error.cause)
        except BadRequest as error:
            return refuse(error.status, str(error))
        except web.HTTPException as error:
            return refuse(error.status, error.text or error.reason)
        except Exception as error:  # noqa: BLE001
            # As in the real guest: a bug here must cost one request only.
            _log.exception("%s %s failed", request.method, request.path)
            return refuse(500, f"{request.method} {request.path} failed inside: {type(error).__name__}: {error}")

    async def _serve(self, request: web.Request) -> web.Response:
        method, path, headers = request.method, request.path, request.headers
        if method == "POST" and path != UPLOAD:
            await request.read()
        desktop = self._world.find(headers.get("Authorization", "").removeprefix("Bearer "))
        if desktop is None:
            return refuse(401, "this token leads to no desktop: it was never given out, or the desktop was reset")
        await desktop.enter(headers.get(LEASE_HEADER, ""))
        endpoint = ENDPOINTS.get((method, path))
        if endpoint is None:
            return refuse(404, f"a simulated desktop has no endpoint {method} {path}")
        return await endpoint(desktop, request)
