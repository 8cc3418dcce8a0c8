"""Where a scripted server is reached: a TCP port or a unix socket, open at once or only after a while.

Owns the socket, and all connections, from the beginning to the end of `serving`. Guarantees: a port is taken, and so
known, before anybody listens on it: a server that still starts refuses connections, as vLLM does; a unix socket is not
there until then.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from deskroll.errors import InputError
from deskroll.host.listen import Listen, open_listener

_BACKLOG = 4096
_SHUTDOWN_S = 0.2
MAX_BODY = 256 * 1024 * 1024
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, listen: Listen, *, after: float = 0.0) -> AsyncIterator[str]:
    """Serve there, `after` so many seconds; gives the base address: http://HOST:PORT/v1, or unix:PATH."""
    # Without an Application: there is nothing to route, and it serves half as many requests again.
    server = web.Server(handler, request_factory=_make_request, handler_cancellation=True, access_log=None)
    runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_S)
    async with AsyncExitStack() as stack:
        sockets = stack.enter_context(ExitStack())  # closed last: the loop still looks at them while the runner ends
        port = None if listen.is_unix else sockets.enter_context(_take(listen))

        async def begin() -> None:
            listener = port or sockets.enter_context(open_listener(listen, instead="choose another path"))
            await web.SockSite(runner, listener, backlog=_BACKLOG).start()

        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        if after:
            stack.push_async_callback(_end, asyncio.create_task(_later(after, begin), name="scripted server"))
        else:
            await begin()
        at = listen if port is None else Listen(host=listen.host, port=port.getsockname()[1])
        yield str(at) if at.is_unix else f"{at.url}/v1"


def _take(listen: Listen) -> socket.socket:
    """A port on which nobody listens yet."""
    taken = socket.socket(socket.AF_INET6 if ":" in listen.host else socket.AF_INET)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((listen.host, listen.port))
    except OSError as problem:
        taken.close()
        where = f"{listen.host}:{listen.port}"
        raise InputError(f"cannot serve on {where}: {problem.strerror or problem}") from problem
    return taken


async def _later(seconds: float, begin: Callable[[], Awaitable[None]]) -> None:
    await asyncio.sleep(seconds)
    await begin()


async def _end(starting: asyncio.Task[None]) -> None:
    starting.cancel()
    await asyncio.wait([starting])
    if not starting.cancelled():
        starting.result()


def _make_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY)
