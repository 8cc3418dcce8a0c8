"""Control: a live run answers here, on a unix socket of its owner's: what it does, and other limits, and stop.

    GET  /status    RunStatus as JSON           GET  /metrics   the same for Prometheus
    POST /limits    {"num_rollouts": 8, ...}    POST /stop      {"now": false}
    GET  /events?last=20    events as JSON lines, as they happen, after the last so many, until the run is closed

A program that keeps a runtime for long may add routes of its own (`Steering.routes`).

Whoever changes something is answered with what the run does now: a run that was told to stop may be gone before it is
asked again.
With `metrics` set, /metrics answers on TCP as well, to whoever has the token.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Protocol

import msgspec
from aiohttp import web

from deskroll.errors import ConfigError, DeskrollError, InputError
from deskroll.host.listen import Listen
from deskroll.host.owner import is_left, owner_mark
from deskroll.host.runtime_folder import LONGEST_SOCKET_PATH, runtime_root
from deskroll.host.tokens import TOKEN_VARIABLE, bears_token
from deskroll.rollout.metrics import exposition
from deskroll.rollout.service_status import ServiceStatus
from deskroll.rollout.status import RunStatus
from deskroll.types import Record

_RUNS = "runs"


class ChangeLimits(Record, frozen=True, forbid_unknown_fields=True):
    """Other limits from now on."""

    num_rollouts: int | None = None
    max_concurrent_rollouts: int | None = None


class StopRun(Record, frozen=True, forbid_unknown_fields=True):
    """End the run."""

    now: bool = False
    """Whether what runs is stopped too."""


class Steering(Record, frozen=True):
    """What can be asked of a live run."""

    status: Callable[[], RunStatus]
    change: Callable[[int | None, int | None], None]
    stop: Callable[[bool], None]
    follow: Callable[[int], AsyncGenerator[bytes]]
    routes: tuple[web.RouteDef, ...] = ()
    """Of the program that has opened the runtime, beside those of every run."""


class Extension(Protocol):
    """What a program that keeps a runtime for long adds to its control."""

    def status(self) -> ServiceStatus:
        """Its own part of the status."""

    def stop(self, now: bool) -> None:
        """Somebody wants it to end; `now`: and what runs, too."""

    def routes(self) -> Sequence[web.RouteDef]:
        """Routes of its own."""


def sockets_folder() -> Path:
    """Where live runs of this user answer."""
    folder = runtime_root() / _RUNS
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def socket_path(name: str, kind: str = "sock") -> Path:
    """A place for a socket of this process."""
    path = sockets_folder() / f"{name}-{owner_mark()}.{kind}"
    if len(str(path)) > LONGEST_SOCKET_PATH:
        raise ConfigError(f"the path {path} is too long for a socket; set DESKROLL_RUNTIME_DIR to a shorter one")
    return path


def sweep_sockets() -> None:
    """Remove the sockets of runs that are gone."""
    for path in sockets_folder().iterdir():
        if is_left(mark_of(path)):
            path.unlink(missing_ok=True)


def mark_of(socket: Path) -> str:
    """The mark of the process that made a socket."""
    return "-".join(socket.stem.split("-")[-3:])


@asynccontextmanager
async def serve_control(steering: Steering, run_id: str, metrics: str = "") -> AsyncIterator[str]:
    """Answer for the length of the block; yields the socket's path."""
    path = socket_path(run_id[:24])
    runners = []
    try:
        runners.append(await _start_runner(_app(steering)))
        await web.UnixSite(runners[0], str(path)).start()
        path.chmod(0o600)  # until then, the folder keeps others out
        if metrics:
            runners.append(await _start_runner(_metrics_app(steering, _token())))
            at = Listen.parse(metrics)
            if at.is_unix:
                raise ConfigError(f"metrics is {metrics!r}; write HOST:PORT, e.g. 127.0.0.1:9400")
            try:
                await web.TCPSite(runners[1], at.host, at.port).start()
            except OSError as error:
                raise ConfigError(f"metrics: cannot listen on {metrics}: {error.strerror or error}") from error
        yield str(path)
    finally:
        for runner in runners:
            await runner.cleanup()
        path.unlink(missing_ok=True)


async def _start_runner(app: web.Application) -> web.AppRunner:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    return runner


def _token() -> str:
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token:
        raise ConfigError(f"metrics needs a token: set {TOKEN_VARIABLE}, and give it to Prometheus as bearer token")
    return token


def _app(steering: Steering) -> web.Application:
    async def status(request: web.Request) -> web.Response:
        return _answer_status(steering)

    async def metrics(request: web.Request) -> web.Response:
        return _answer_metrics(steering)

    async def limits(request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read(), type=ChangeLimits)
        steering.change(asked.num_rollouts, asked.max_concurrent_rollouts)
        return _answer_status(steering)

    async def stop(request: web.Request) -> web.Response:
        steering.stop(msgspec.json.decode(await request.read() or b"{}", type=StopRun).now)
        return _answer_status(steering)

    async def events(request: web.Request) -> web.StreamResponse:
        last = request.query.get("last", "0")
        if not last.isascii() or not last.isdigit():
            raise InputError(f"last is {last!r}; it is a number of events")
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        async with aclosing(steering.follow(int(last))) as lines:
            with contextlib.suppress(ConnectionError):  # whoever followed has left
                async for each in lines:
                    await response.write(each)
        return response

    app = web.Application(middlewares=[answer_errors])
    app.router.add_get("/events", events)
    app.router.add_get("/status", status)
    app.router.add_get("/metrics", metrics)
    app.router.add_post("/limits", limits)
    app.router.add_post("/stop", stop)
    app.router.add_routes(steering.routes)
    return app


def _metrics_app(steering: Steering, token: str) -> web.Application:
    async def metrics(request: web.Request) -> web.Response:
        if not bears_token(request.headers.get("Authorization", ""), token):
            raise web.HTTPUnauthorized
        return _answer_metrics(steering)

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    return app


def _answer_status(steering: Steering) -> web.Response:
    return web.Response(body=msgspec.json.encode(steering.status()), content_type="application/json")


def _answer_metrics(steering: Steering) -> web.Response:
    return web.Response(body=exposition(steering.status()), headers={"Content-Type": "text/plain; version=0.0.4"})


@web.middleware
async def answer_errors(request: web.Request, handler: Callable[[web.Request], object]) -> web.StreamResponse:
    """What is wrong, as JSON: {"error": ...}."""
    try:
        return await handler(request)  # type: ignore[misc, no-any-return]
    except (DeskrollError, msgspec.MsgspecError) as error:
        status = 400 if isinstance(error, InputError | msgspec.MsgspecError) else 500
        body = msgspec.json.encode({"error": str(error)})
        return web.Response(status=status, body=body, content_type="application/json")
