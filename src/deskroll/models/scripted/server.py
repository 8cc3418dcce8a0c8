"""ScriptedServer: an OpenAI-compatible server over real HTTP that answers from a script, and on request stands in for
vLLM.

It keeps no state of conversations: which turn comes next follows from the request alone, so any number of clients can
talk to it, and a run that is resumed goes on where it was. Requests are checked as a strict server checks them.
Guarantees: the same requests in the same order get the same answers, faults and latencies; a client that goes away
ends its request. With `vllm` it has vLLM's own endpoints too (`control.py`), most of which know no key: it is then
served on loopback or a unix socket only.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
from collections import Counter

import msgspec
from aiohttp import web

from deskroll.errors import InputError
from deskroll.host.listen import Listen
from deskroll.host.tokens import bears_token
from deskroll.models.scripted.answers import answer, bad_arguments, cut_turn, error, turn_number, wrong_tool
from deskroll.models.scripted.control import Control
from deskroll.models.scripted.engine import Condition, Engine, EngineDead
from deskroll.models.scripted.listening import MAX_BODY, serving
from deskroll.models.scripted.requests import ChatRequest, Refused, read_request
from deskroll.models.scripted.responses import REFUSALS, half, hang_up, refusal, reply
from deskroll.models.scripted.script import FaultKind, Script, Turn
from deskroll.models.scripted.settings import Starting, Trouble, VllmSettings
from deskroll.models.settings import is_loopback
from deskroll.types import Record

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
    """Serves one script, on `HOST:PORT` or `unix:PATH`. Use with `async with`; `url` says where."""

    def __init__(
        self,
        script: Script,
        *,
        listen: str = "127.0.0.1:0",
        token: str | None = None,
        keep_requests: bool = False,
        vllm: VllmSettings | None = None,
    ) -> None:
        self._listen = Listen.parse(listen)
        _check_reach(self._listen, token, vllm)
        self.script = script
        self.requests: list[bytes] = []
        """The bodies of all requests for a completion, as they came; only with `keep_requests`."""
        self.commands: list[str] = []
        """Path and query of every POST to vLLM's own endpoints, in the order in which they came."""
        self.sessions: list[str] = []
        """Of each of those, who asked (the header X-Session-ID), if that was said; only with `keep_requests`."""
        self._token = token
        self._keep = keep_requests
        self._fingerprint = "scripted-" + hashlib.sha256(script.model_dump_json().encode()).hexdigest()[:10]
        self._random = random.Random(script.seed)  # noqa: S311  (it has to be the same every time)
        self._vllm = vllm
        self._audible = asyncio.Event()
        self.trouble = vllm.trouble if vllm else Trouble()
        self._engine: Engine | None = None
        self._control: Control | None = None
        self._up_at = 0.0
        self._url = ""
        self._open = contextlib.AsyncExitStack()
        self._requests = self._refused = self._in_flight = 0
        self._faults: Counter[str] = Counter()

    @property
    def url(self) -> str:
        """The base address for clients: http://HOST:PORT/v1, or unix:PATH."""
        if not self._url:
            raise InputError("the scripted server is not open: use it inside `async with`")
        return self._url

    @property
    def stats(self) -> ScriptedStats:
        """What it has done so far."""
        return ScriptedStats(
            requests=self._requests, refused=self._refused, faults=dict(self._faults), in_flight=self._in_flight
        )

    @property
    def trouble(self) -> Trouble:
        """What goes wrong with it at the moment; may be replaced at any time, which ends a silence."""
        return self._trouble

    @trouble.setter
    def trouble(self, trouble: Trouble) -> None:
        self._trouble = trouble
        if trouble.silent:
            self._audible.clear()
        else:
            self._audible.set()

    async def __aenter__(self) -> ScriptedServer:
        start, refuses = self.trouble.start_s, self.trouble.starting is Starting.REFUSES
        async with contextlib.AsyncExitStack() as stack:
            if self._vllm is not None:
                self._engine = Engine.start(self._vllm)
                self._control = Control(self._engine, lambda: self.trouble)
                stack.callback(self._engine.close)
            self._up_at = asyncio.get_running_loop().time() + start
            after = start if refuses else 0.0
            self._url = await stack.enter_async_context(serving(self._answer, self._listen, after=after))
            self._open = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._url = ""
        await self._open.aclose()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if asyncio.get_running_loop().time() < self._up_at:
            return reply(error("The server is starting (a scripted fault)", kind="server_error"), 503)
        if self._engine is not None and self._engine.condition is Condition.DEAD:
            return hang_up(request)
        await self._audible.wait()
        try:
            response = await self._route(request)
        except Refused as problem:
            response = reply(error(str(problem), param=problem.param), problem.status)
        except EngineDead as problem:
            response = reply(error(str(problem), kind="InternalServerError"), 500)
        await self._audible.wait()
        return response

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        method, path = request.method, request.path
        open_to_all = not path.startswith("/v1") if self._control else path == "/health"
        if not open_to_all and self._token and not bears_token(request.headers.get("Authorization", ""), self._token):
            unknown = error("Incorrect API key provided", code="invalid_api_key")
            return reply(b'{"error":"Unauthorized"}' if self._control else unknown, 401)
        if self._control is not None and (handler := self._control.handler(request)) is not None:
            if method == "POST":
                self.commands.append(request.path_qs)
            return await handler(request)
        if path == "/health" and method == "GET":
            return reply(b'{"status":"ok"}')
        if path == "/v1/models" and method == "GET":
            return reply(b'{"object":"list","data":[{"id":"scripted","object":"model","owned_by":"deskroll"}]}')
        if path != "/v1/chat/completions":
            raise Refused(f"Unknown request URL: {method} {path}", status=404)
        if method != "POST":
            raise Refused(f"Not allowed to {method} on {path}", status=405)
        return await self._counted(request)

    async def _counted(self, request: web.BaseRequest) -> web.StreamResponse:
        self._requests += 1
        self._in_flight += 1
        try:
            return await self._complete(request, self._requests)
        except Refused:
            self._refused += 1
            raise
        finally:
            self._in_flight -= 1

    async def _complete(self, request: web.BaseRequest, number: int) -> web.StreamResponse:
        asked = await self._read(request)
        turn = self.script.turn(asked.opening, turn_number(asked))
        if turn is None:
            raise Refused("No reply of the script fits this conversation: add one without `when`", "messages")
        turn = turn.sampled(asked.seed)
        if self._engine is not None:
            self._engine.check_served(asked.model)
        fault, latency = self._draw(asked, turn)
        if fault is not None:
            self._faults[fault] += 1
            turn = _misled(turn, fault, number, asked)
        if fault in REFUSALS:
            await asyncio.sleep(latency)
            return refusal(request, fault, self.script.faults)
        if fault is FaultKind.STALL:
            latency += self.script.faults.stall
        whole, made = turn, None
        if self._engine is not None:
            turn, tokens = cut_turn(turn, asked.max_tokens)
            made = await self._engine.generate(asked, tokens, latency)
        elif latency:
            await asyncio.sleep(latency)
        body = answer(asked, turn, number, self._fingerprint, made, cut=turn is not whole)
        if fault is FaultKind.HALF_BODY:
            return await half(request, body)
        return reply(body[: len(body) // 2] if fault is FaultKind.INVALID_JSON else body)

    async def _read(self, request: web.BaseRequest) -> ChatRequest:
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise Refused(f"The body is larger than {MAX_BODY} bytes", status=413) from None
        if self._keep:
            self.requests.append(body)
            self.sessions.append(request.headers.get("X-Session-ID", ""))
        return read_request(body)

    def _draw(self, asked: ChatRequest, turn: Turn) -> tuple[FaultKind | None, float]:
        """The fault and the latency of the next request. Always the same number of draws, so the order decides all."""
        faults, dice = self.script.faults, self._random
        chance, which, slowness = dice.random(), dice.random(), dice.random()
        low, high = turn.latency or self.script.latency
        latency = low + (high - low) * slowness
        if chance >= faults.rate or (faults.when is not None and not faults.when.fits(asked.opening)):
            return None, latency
        kinds = [kind for kind in faults.kinds if asked.tools or kind not in _NEED_TOOLS]
        return kinds[int(which * len(kinds))] if kinds else None, latency


def _misled(turn: Turn, fault: FaultKind, number: int, asked: ChatRequest) -> Turn:
    """The turn, with the wrong call that a fault makes of it."""
    if fault is FaultKind.WRONG_TOOL:
        return wrong_tool(number, turn)
    return bad_arguments(number, turn, asked) if fault is FaultKind.BAD_ARGUMENTS else turn


def _check_reach(listen: Listen, token: str | None, vllm: VllmSettings | None) -> None:
    if listen.is_unix or is_loopback(listen.host):
        return
    if vllm is not None:
        raise InputError(f"{listen.host} is not loopback, and vLLM's control endpoints know no key: use unix:PATH")
    if not token:
        raise InputError(f"{listen.host} is not a loopback address: a server that others can reach needs a token")
