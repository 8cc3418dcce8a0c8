"""ScriptedServer: an OpenAI-compatible server over real HTTP that answers from a script.

It keeps no state of conversations: which turn comes next follows from the request alone, so any number of clients can
talk to it, and a run that is resumed goes on where it was. Requests are checked as a strict server checks them.
Guarantees: the same requests in the same order get the same answers, faults and latencies; a client that goes away
ends its request.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
import socket
import struct
from collections import Counter

import msgspec
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from deskroll.errors import InputError
from deskroll.host.tokens import bears_token
from deskroll.models.scripted.answers import answer, bad_arguments, error, turn_number, wrong_tool
from deskroll.models.scripted.requests import ChatRequest, Refused, read_request
from deskroll.models.scripted.script import FaultKind, Script, Turn
from deskroll.models.settings import is_loopback
from deskroll.types import Record

_BACKLOG = 4096
_SHUTDOWN_S = 0.2
_MAX_BODY = 256 * 1024 * 1024
_NEED_TOOLS = (FaultKind.WRONG_TOOL, FaultKind.BAD_ARGUMENTS)


class ScriptedStats(Record, frozen=True):
    """What a server has done so far."""

    requests: int = 0
    """Requests for a completion."""
    refused: int = 0
    """Those that were not as they must be."""
    faults: dict[str, int] = msgspec.field(default_factory=dict)
    """Faults by kind."""
    in_flight: int = 0
    """Requests for a completion that are open."""


class ScriptedServer:
    """Serves one script. Use with `async with`; `url` says where."""

    def __init__(
        self,
        script: Script,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        keep_requests: bool = False,
    ) -> None:
        if not token and not is_loopback(host):
            raise InputError(f"{host} is not a loopback address: a server that others can reach needs a token")
        self.script = script
        self.requests: list[bytes] = []
        """The bodies of all requests for a completion, as they came; only with `keep_requests`."""
        self._host, self._port = host, port
        self._token = token
        self._keep = keep_requests
        self._fingerprint = "scripted-" + hashlib.sha256(script.model_dump_json().encode()).hexdigest()[:10]
        self._random = random.Random(script.seed)  # noqa: S311  (it has to be the same every time)
        self._runner: web.ServerRunner | None = None
        self._requests = self._refused = self._in_flight = 0
        self._faults: Counter[str] = Counter()

    @property
    def url(self) -> str:
        """The base address for clients; it ends in /v1."""
        if self._runner is None:
            raise InputError("the scripted server is not open: use it inside `async with`")
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._runner.addresses[0][1]}/v1"

    @property
    def stats(self) -> ScriptedStats:
        """What it has done so far."""
        return ScriptedStats(
            requests=self._requests, refused=self._refused, faults=dict(self._faults), in_flight=self._in_flight
        )

    async def __aenter__(self) -> ScriptedServer:
        # Without an Application: there is nothing to route, and it serves half as many requests again.
        server = web.Server(self._answer, request_factory=_make_request, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_S)
        try:
            await self._runner.setup()
            await web.TCPSite(self._runner, self._host, self._port, backlog=_BACKLOG).start()
        except OSError as problem:
            await self.__aexit__()
            raise InputError(f"cannot serve on {self._host}:{self._port}: {problem.strerror or problem}") from problem
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        method, path = request.method, request.path
        if path == "/health" and method == "GET":
            return _json(b'{"status":"ok"}')
        if self._token and not bears_token(request.headers.get("Authorization", ""), self._token):
            return _json(error("Incorrect API key provided", code="invalid_api_key"), 401)
        if path == "/v1/models" and method == "GET":
            return _json(b'{"object":"list","data":[{"id":"scripted","object":"model","owned_by":"deskroll"}]}')
        if path != "/v1/chat/completions":
            return _json(error(f"Unknown request URL: {method} {path}", code="unknown_url"), 404)
        if method != "POST":
            return _json(error(f"Not allowed to {method} on {path}", code="method_not_allowed"), 405)
        self._requests += 1
        self._in_flight += 1
        try:
            return await self._complete(request)
        except Refused as problem:
            self._refused += 1
            return _json(error(str(problem), param=problem.param), problem.status)
        finally:
            self._in_flight -= 1

    async def _complete(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise Refused(f"The body is larger than {_MAX_BODY} bytes", status=413) from None
        if self._keep:
            self.requests.append(body)
        asked = read_request(body)
        turn = self.script.turn(asked.opening, turn_number(asked))
        if turn is None:
            raise Refused("No reply of the script fits this conversation: add one without `when`", "messages")
        number = self._requests
        fault, latency = self._draw(asked)
        if latency:
            await asyncio.sleep(latency)
        if fault is not None:
            self._faults[fault] += 1
            return await self._spoil(request, asked, turn, fault, number)
        return _json(answer(asked, turn, number, self._fingerprint))

    def _draw(self, asked: ChatRequest) -> tuple[FaultKind | None, float]:
        """The fault and the latency of the next request. Always the same number of draws, so the order decides all."""
        faults, dice = self.script.faults, self._random
        chance, which, slowness = dice.random(), dice.random(), dice.random()
        low, high = self.script.latency
        latency = low + (high - low) * slowness
        if chance >= faults.rate:
            return None, latency
        kinds = [kind for kind in faults.kinds if asked.tools or kind not in _NEED_TOOLS]
        return kinds[int(which * len(kinds))] if kinds else None, latency

    async def _spoil(
        self, request: web.BaseRequest, asked: ChatRequest, turn: Turn, fault: FaultKind, number: int
    ) -> web.StreamResponse:
        """An answer with a fault."""
        faults = self.script.faults
        match fault:
            case FaultKind.TOO_MANY:
                after = faults.retry_after
                headers = {"Retry-After": str(math.ceil(after)), "retry-after-ms": f"{after * 1000:g}"}
                said = error("Rate limit reached (a scripted fault)", kind="requests", code="rate_limit_exceeded")
                return _json(said, 429, headers)
            case FaultKind.BROKEN:
                return _json(error("The server had an error (a scripted fault)", kind="server_error"), 500)
            case FaultKind.RESET:
                return _reset(request)
            case FaultKind.WRONG_TOOL:
                turn = wrong_tool(number, turn)
            case FaultKind.BAD_ARGUMENTS:
                turn = bad_arguments(number, turn, asked)
            case FaultKind.STALL:
                await asyncio.sleep(faults.stall)
            case FaultKind.HALF_BODY | FaultKind.INVALID_JSON:
                pass
        body = answer(asked, turn, number, self._fingerprint)
        if fault is FaultKind.HALF_BODY:
            return await _half(request, body)
        return _json(body[: len(body) // 2] if fault is FaultKind.INVALID_JSON else body)


def _json(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


async def _half(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(body))})
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response


def _reset(request: web.BaseRequest) -> web.Response:
    if request.transport is not None:
        connection = request.transport.get_extra_info("socket")
        # Closing with a linger of 0 is what sends a reset.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()
    return web.Response()


def _make_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_MAX_BODY)
