"""The guest's HTTP application: token, deadlines, errors as JSON, and the routes.

Guarantees: every request is answered, by a result or by a status and a message that says what is wrong; nothing that
a request holds ends the server. A desktop that has lost a part answers 503 with `lost: true` to everything.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from deskroll.desktops.guest.machine import Machine
from deskroll.desktops.guest.requests import LOCAL_HOST, MAX_BODY, BadRequest, refuse, time_left
from deskroll.desktops.guest.routes import MACHINE, execute, files, observe, ours, recording, windows
from deskroll.desktops.x11.connection import XRequestError
from deskroll.errors import ActionError, DeathCause, DesktopError, DesktopLost
from deskroll.host.tokens import bears_token

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_log = logging.getLogger(__name__)


def create_app(machine: Machine, *, token: str = "") -> web.Application:
    """The application that serves one desktop."""
    app = web.Application(client_max_size=MAX_BODY, middlewares=[_errors, _authorisation(token)])
    app[MACHINE] = machine
    for module in (observe, execute, windows, files, recording, ours):
        app.add_routes(module.routes)
    return app


def _authorisation(token: str) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if token and not bears_token(request.headers.get("Authorization", ""), token):
            return refuse(401, "this desktop wants a token: send the header 'Authorization: Bearer TOKEN'")
        if not token and ("Origin" in request.headers or not _is_local(request.host)):
            # A web page in a browser on this machine reaches loopback too; without a token this keeps it out.
            return refuse(403, "without a token this desktop takes no requests from web pages or for other hosts")
        return await handler(request)

    return check


def _is_local(host: str) -> bool:
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    name = name.strip("[]")
    if name in ("localhost", LOCAL_HOST):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        async with asyncio.timeout(time_left(request)):
            return await handler(request)
    except BadRequest as error:
        return refuse(error.status, str(error))
    except web.HTTPException as error:
        return refuse(error.status, _explain(request, error))
    except ActionError as error:
        return refuse(400, str(error))
    except DesktopLost as error:
        known = error.cause is not DeathCause.UNKNOWN
        return refuse(503, str(error), lost=error.cause if known else request.app[MACHINE].session.cause)
    except (DesktopError, XRequestError) as error:
        return refuse(500, str(error))
    except TimeoutError:
        return refuse(504, f"{request.method} {request.path} was not done in time")
    except Exception as error:  # noqa: BLE001
        # The last line of defence: a bug here must cost one request, not the desktop.
        _log.exception("%s %s failed", request.method, request.path)
        return refuse(500, f"{request.method} {request.path} failed inside: {type(error).__name__}: {error}")


def _explain(request: web.Request, error: web.HTTPException) -> str:
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return f"the body of {request.method} {request.path} is too large: at most {MAX_BODY} bytes"
    if isinstance(error, web.HTTPMethodNotAllowed):
        return f"{request.path} takes {', '.join(sorted(error.allowed_methods))}, not {request.method}"
    if isinstance(error, web.HTTPNotFound):
        return f"there is no endpoint {request.path}"
    return error.text or error.reason
