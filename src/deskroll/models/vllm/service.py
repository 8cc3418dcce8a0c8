"""Control of a pool: it answers on a unix socket of its owner's, beside the one on which tickets are asked for.

    GET  /status    PoolStatus as JSON          POST /reload    {"path": ""}: the newest of the source, or that folder
    POST /add       {"url", "model"}            POST /remove    {"url"}

Whoever changes something is answered with what holds then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from aiohttp import web

from deskroll.errors import DeskrollError, InputError, ModelError
from deskroll.host.listen import Listen, is_served, open_listener
from deskroll.host.runtime_folder import runtime_root
from deskroll.models.settings import is_loopback
from deskroll.models.vllm.control import ServerControl
from deskroll.models.vllm.pool import ModelServicePool
from deskroll.models.vllm.status import PoolStatus, Reloaded
from deskroll.types import Record

T = TypeVar("T")
_BESIDE = ".control"
_LONGEST_S = 7200.0
"""A reload may have to start servers anew."""


class Reload(Record, frozen=True, forbid_unknown_fields=True):
    """Look for newer weights, or take those of a folder."""

    path: str = ""


class Service(Record, frozen=True, forbid_unknown_fields=True):
    """A server that comes or goes."""

    url: str
    model: str = ""


def pool_listen(text: str) -> Listen:
    """Where a pool answers: as it is written, else on this user's usual socket."""
    if not text:
        return Listen(path=str(runtime_root() / "models.sock"))
    listen = Listen.parse(text)
    if not listen.is_unix and not is_loopback(listen.host):
        raise InputError(
            f"{listen.host} is not loopback: a pool's servers listen on unix sockets of this machine, for vLLM's "
            "control endpoints know no key; use unix:PATH, or 127.0.0.1:PORT"
        )
    return listen


def control_listen(listen: Listen) -> Listen:
    """Where its control answers."""
    return Listen(path=(listen if listen.is_unix else pool_listen("")).path + _BESIDE)


@asynccontextmanager
async def serve_control(pool: ModelServicePool, listen: Listen) -> AsyncIterator[None]:
    """Answer for the length of the block."""
    app = web.Application(middlewares=[_errors])

    async def status(_request: web.Request) -> web.Response:
        return _answer(await pool.status())

    async def reload(request: web.Request) -> web.Response:
        path = msgspec.json.decode(await request.read(), type=Reload).path
        return _answer(await (pool.reload(Path(path)) if path else pool.load_latest_model()))

    async def add(request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read(), type=Service)
        pool.add_service(asked.url, asked.model)
        return _answer(await pool.status())

    async def remove(request: web.Request) -> web.Response:
        await pool.remove_service(msgspec.json.decode(await request.read(), type=Service).url)
        return _answer(await pool.status())

    app.router.add_get("/status", status)
    for path, handler in (("/reload", reload), ("/add", add), ("/remove", remove)):
        app.router.add_post(path, handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        with open_listener(listen, instead="stop that pool, or choose another path with --listen") as listener:
            await web.SockSite(runner, listener).start()
            try:
                yield
            finally:
                await runner.cleanup()  # while its socket is open still
    finally:
        await runner.cleanup()


async def ask_status(at: str) -> PoolStatus:
    """How a pool stands."""
    return await _call(at, "/status", None, PoolStatus)


async def ask_reload(at: str, path: str = "") -> Reloaded:
    """Have it look for newer weights, or take those of a folder."""
    return await _call(at, "/reload", Reload(path=path), Reloaded)


async def ask_add(at: str, url: str, model: str = "") -> PoolStatus:
    """Have it ask a server, too."""
    return await _call(at, "/add", Service(url=url, model=model), PoolStatus)


async def ask_remove(at: str, url: str) -> PoolStatus:
    """Have it let a server go."""
    return await _call(at, "/remove", Service(url=url), PoolStatus)


async def _call(at: str, path: str, asked: Reload | Service | None, kind: type[T]) -> T:
    listen = pool_listen(at)
    socket = Path(control_listen(listen).path)
    if not await asyncio.to_thread(is_served, socket):
        left = "; what a killed one has left, `deskroll models reap` ends" if socket.exists() else ""
        raise InputError(
            f"no pool of models answers on {listen}: start one with `deskroll models up`, or name its --at{left}"
        )
    async with ServerControl(socket, _LONGEST_S) as control:
        if asked is None:
            status, body = await control.get(path)
        else:
            status, body = await control.post(path, json=msgspec.to_builtins(asked))
    if status != 200:
        said = msgspec.json.decode(body, type=dict[str, str])["error"]
        raise InputError(said) if status == 400 else ModelError(said)
    return msgspec.json.decode(body, type=kind)


def _answer(record: Record) -> web.Response:
    return web.Response(body=msgspec.json.encode(record), content_type="application/json")


@web.middleware
async def _errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except (DeskrollError, msgspec.MsgspecError) as error:
        status = 400 if isinstance(error, InputError | msgspec.MsgspecError) else 500
        return web.Response(status=status, body=msgspec.json.encode({"error": str(error)}))
