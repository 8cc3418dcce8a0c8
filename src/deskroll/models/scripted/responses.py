"""Responses of a scripted server: JSON, and what does not come out right on purpose."""

from __future__ import annotations

import math
import socket
import struct

from aiohttp import web

from deskroll.models.scripted.answers import error
from deskroll.models.scripted.script import FaultKind, Faults

REFUSALS = (FaultKind.TOO_MANY, FaultKind.BROKEN, FaultKind.UNAVAILABLE, FaultKind.RESET)
"""Faults of requests for which nothing is generated."""


def reply(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """An answer in JSON."""
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


def refusal(request: web.BaseRequest, fault: FaultKind, faults: Faults) -> web.Response:
    """The answer to a request for which nothing is generated."""
    if fault is FaultKind.RESET:
        return hang_up(request)
    if fault is FaultKind.TOO_MANY:
        after = faults.retry_after
        headers = {"Retry-After": str(math.ceil(after)), "retry-after-ms": f"{after * 1000:g}"}
        said = error("Rate limit reached (a scripted fault)", kind="requests", code="rate_limit_exceeded")
        return reply(said, 429, headers)
    return reply(error("The server had an error (a scripted fault)", kind="server_error"), int(fault))


async def half(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
    """Half of an answer; then the connection is closed."""
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(body))})
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response


def hang_up(request: web.BaseRequest) -> web.Response:
    """No answer at all: the connection is reset."""
    if request.transport is not None:
        connection = request.transport.get_extra_info("socket")
        if connection.family != socket.AF_UNIX:
            # Closing with a linger of 0 is what sends a reset.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()
    return web.Response()
