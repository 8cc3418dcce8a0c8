"""ChatClient: asks one OpenAI-compatible server; a client of another protocol overrides what differs (`Request`).

Guarantees: a request that fails for the server's or the network's sake is made again, with pauses; what is refused for
good is not. Every call ends with a completion, with `ModelError` (the server's fault), `ModelRefused` (asking again is
useless) or `ContextTooLong` (the agent's fault), or is cancelled, which leaves no connection behind. Redirects are not
followed, the key goes nowhere but to the endpoint and stands in no message. An open request holds a permit of
`max_in_flight`; a pause before a retry, or the wait for a permit, costs nothing of a request's time.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import ClassVar
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from yarl import URL

from deskroll.clocks import running_time, time_limit
from deskroll.errors import ModelError, plain
from deskroll.models.base import (
    ContextTooLong,
    EndpointLoad,
    EpisodeClock,
    ModelForbidden,
    ModelRefused,
    episode_clock,
)
from deskroll.models.body import Body, Template
from deskroll.models.prices import NO_PRICES, Prices, Tariff, price_of
from deskroll.models.retry import pause, retry_after
from deskroll.models.settings import OPENAI, Endpoint, ModelSettings, Vendor, is_loopback
from deskroll.models.wire import Refusal, Unusable, read_answer, refusal
from deskroll.types import Completion, Event, EventSink, Record, guarded

_RETRIED = frozenset((408, 409, 425, 429))
_CHECK_S = 30.0
_KEEPALIVE_S = 15.0


class Request(Record, frozen=True):
    """One request, as it is sent."""

    parts: list[bytes]
    """The body."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    """Those that not every request of the client has."""


class _Failed(Exception):
    """One request brought no usable answer; another one may."""

    def __init__(self, cause: str, after: float | None = None) -> None:
        super().__init__(cause)
        self.after = after


class _NoClock:
    """Where nobody counts."""

    def paused(self) -> AbstractContextManager[None]:
        return nullcontext()

    def asking(self) -> AbstractContextManager[None]:
        return nullcontext()

    def credit(self, seconds: float) -> None:
        pass


_NO_CLOCK = _NoClock()
_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "User-Agent": "deskroll",
}
_UNPAID = 402
_FORBIDDEN = (401, 404)
"""Nobody who asks is answered; a 403 may be about this one request, whose text a gateway has flagged."""


class ChatClient:
    """A `Model` behind HTTP. Use with `async with`; any number of calls may run at a time."""

    vendor: ClassVar[Vendor] = OPENAI
    path: ClassVar[str] = "chat/completions"
    models_query: ClassVar[Mapping[str, str]] = {}
    """What the list of models is asked for with, so that it is whole."""

    def __init__(
        self,
        settings: ModelSettings,
        *,
        sink: EventSink | None = None,
        prices: Prices = NO_PRICES,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        self.settings = settings
        self.endpoint = settings.resolved(env, self.vendor)
        self._sink = guarded(sink)
        self._price = _price(settings, self.endpoint, prices)
        self._url = self.endpoint.path(self.path)
        self._template = self._head()
        self._limit = int(settings.max_answer_mb * 1_000_000)
        self._permits = asyncio.Semaphore(settings.max_in_flight) if settings.max_in_flight else None
        self._session: aiohttp.ClientSession | None = None
        self._serial = itertools.count()
        self._open: dict[int, float] = {}
        self._calls = self._failures = 0
        self._answered_at: float | None = None
        self._last_error = ""

    async def __aenter__(self) -> ChatClient:
        settings = self.settings
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S),
            headers={**_HEADERS, **self._authorization()},
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
            timeout=aiohttp.ClientTimeout(total=None, connect=settings.connect_timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,  # a small answer that unpacks to a large one would pass the limit
            proxy=_proxy(self._url),
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def complete(self, messages: Sequence[bytes], tools: bytes | None = None) -> Completion:
        """Answer a conversation; see `Model`."""
        request = self._request(messages, tools)
        clock = episode_clock.get() or _NO_CLOCK
        tries = 0
        while True:
            tries += 1
            async with self._slot(clock):
                begun = running_time()
                try:
                    with clock.asking():
                        return await self._ask(request, tries)
                except _Failed as failure:
                    error, after = self._clean(str(failure)), failure.after
                except ModelError as refused:
                    self._note(str(refused))
                    self._emit("model.failed", tries, str(refused))
                    raise
                clock.credit(running_time() - begun)
            self._note(error)
            if tries > self.settings.retries:
                self._emit("model.failed", tries, error)
                times = "once" if tries == 1 else f"{tries} times"
                raise ModelError(f"{self._who}: asked {times}, without a usable answer; the last time: {error}")
            wait = pause(tries, after, base=self.settings.backoff, longest=self.settings.backoff_max)
            self._emit("model.retry", tries, error, wait)
            with clock.paused():
                await asyncio.sleep(wait)

    def _head(self) -> Template:
        """What all requests have in common."""
        return Template.of(self.settings, self.endpoint)

    def _authorization(self) -> dict[str, str]:
        key = self.endpoint.key
        return {} if key is None else {"Authorization": f"Bearer {key.get_secret_value()}"}

    def _request(self, messages: Sequence[bytes], tools: bytes | None) -> Request:
        return Request(parts=self._template.fill(messages, tools))

    def _completion(self, body: bytes, version: str, tries: int) -> Completion:
        """What an answer holds; raises `Unusable`."""
        return read_answer(body, asked=self.settings.name, price=self._price, version=version, tries=tries)

    @asynccontextmanager
    async def _slot(self, clock: EpisodeClock) -> AsyncIterator[None]:
        """A permit for one open request; the wait for it is nobody's time."""
        if self._permits is None:
            yield
            return
        with clock.paused():
            await self._permits.acquire()
        try:
            yield
        finally:
            self._permits.release()

    async def _ask(self, request: Request, tries: int) -> Completion:
        status, headers, body = await self._exchange(request)
        if status != 200:
            raise self._refused(status, headers, body)
        version = headers.get("x-model-version") or headers.get("version") or ""
        try:
            completion = self._completion(body, version, tries)
        except Unusable as error:
            said = self._said(body).message
            raise _Failed(f"{error}{f'; it says: {said}' if said else ''}") from None
        self._answered_at = running_time()
        return completion

    async def _exchange(self, request: Request) -> tuple[int, Mapping[str, str], bytes]:
        """One request: status, headers and body of what came back."""
        session = self._live()
        serial = next(self._serial)
        self._open[serial] = running_time()
        self._calls += 1
        try:
            body, headers = Body(request.parts), request.headers
            async with (
                time_limit(self.settings.timeout),
                session.post(self._url, data=body, headers=headers, allow_redirects=False) as response,
            ):
                return response.status, response.headers, await self._read(response)
        except (aiohttp.ClientError, OSError) as error:
            raise _Failed(self._cause(error, self.settings.timeout)) from None
        finally:
            del self._open[serial]

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        content, parts, size = response.content, [], 0
        while chunk := await content.readany():
            parts.append(chunk)
            size += len(chunk)
            if size > self._limit:
                raise ModelError(f"{self._who} answered with more than {self.settings.max_answer_mb:g} MB")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _live(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise ModelError(f"{self._who}: the client is not open; use it inside `async with`")
        return self._session

    def _cause(self, error: BaseException, limit: float) -> str:
        """What went wrong with a connection, without what aiohttp would tell of addresses and headers."""
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return f"no connection within {self.settings.connect_timeout:g} s{self._hint}"
        if isinstance(error, TimeoutError):
            return f"no complete answer within {limit:g} s"
        if isinstance(error, aiohttp.ClientConnectorError):
            number = error.os_error.errno
            # asyncio's own words repeat the address; those of a name that is not found have no such number.
            reason = os.strerror(number) if number and number > 0 else error.os_error.strerror
            return f"no connection: {reason or type(error.os_error).__name__}{self._hint}"
        if isinstance(error, aiohttp.ServerDisconnectedError):
            return "the server closed the connection without an answer"
        if isinstance(error, aiohttp.ClientPayloadError):
            return "the answer broke off"
        if isinstance(error, OSError) and error.strerror:
            return f"the connection broke: {error.strerror}"
        return f"the connection failed: {type(error).__name__}: {error}"

    @property
    def _hint(self) -> str:
        return f" (is the server up, and is base_url, or ${self.vendor.url_variable}, right?)"

    def _refused(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelError | _Failed:
        said = self._said(body)
        what = self._clean(f"status {status}{f': {said.message}' if said.message else ''}")
        unpaid = status == _UNPAID or (status < 500 and said.no_quota)
        if (status in _RETRIED or status >= 500) and not unpaid:
            return _Failed(what, retry_after(headers))
        message = f"{self._who} refused: {what}{_advice(status, self.endpoint, self.vendor, unpaid=unpaid)}"
        if status in (400, 413, 422) and said.too_long:
            return ContextTooLong(message, status)
        return ModelForbidden(message, status) if unpaid or status in _FORBIDDEN else ModelRefused(message, status)

    @property
    def knows_price(self) -> bool:
        """Whether the cost of an answer can be told."""
        return self._price is not None

    def load(self) -> EndpointLoad:
        """What goes on at this moment."""
        now = running_time()
        return EndpointLoad(
            url=self.endpoint.shown,
            in_flight=len(self._open),
            oldest_s=now - next(iter(self._open.values())) if self._open else 0.0,
            since_answer_s=None if self._answered_at is None else now - self._answered_at,
            calls=self._calls,
            failures=self._failures,
            last_error=self._last_error,
        )

    async def check(self) -> tuple[str, ...]:
        """Whether endpoint and key work: the names of the models that it lists, none where it has no list."""
        limit = min(_CHECK_S, self.settings.timeout)
        timeout = aiohttp.ClientTimeout(total=limit, connect=self.settings.connect_timeout)
        try:
            url = self.endpoint.path("models").update_query(self.models_query)
            async with self._live().get(url, timeout=timeout, allow_redirects=False) as response:
                status, headers, body = response.status, response.headers, await self._read(response)
        except (aiohttp.ClientError, OSError) as error:
            raise ModelError(f"{self._who}: {self._clean(self._cause(error, limit))}") from None
        if status in (404, 405, 501):
            return ()
        if status != 200:
            refused = self._refused(status, headers, body)
            raise refused if isinstance(refused, ModelError) else ModelError(f"{self._who}: {refused}")
        try:
            return tuple(model.id for model in msgspec.json.decode(body, type=_Models).data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return ()

    @property
    def _who(self) -> str:
        return f"model {plain(self.settings.name, 200)} at {self.endpoint.shown}"

    def _said(self, body: bytes) -> Refusal:
        """What a server says, without the key where it repeats that: before anything is cut off."""
        key = self.endpoint.key
        return refusal(body.replace(key.get_secret_value().encode(), b"***") if key is not None else body)

    def _clean(self, text: str) -> str:
        """A text that may be shown, even where the key is in it."""
        key = self.endpoint.key
        return plain(text.replace(key.get_secret_value(), "***") if key is not None else text, 1000)

    def _note(self, error: str) -> None:
        self._failures += 1
        self._last_error = error

    def _emit(self, kind: str, tries: int, cause: str, wait: float | None = None) -> None:
        data: dict[str, object] = {"model": self.settings.name, "tries": tries, "reason": cause}
        if wait is not None:
            data["pause_s"] = wait
        self._sink.emit(Event(kind=kind, subject=self.endpoint.shown, data=data))


class _Listed(Record, frozen=True):
    id: str


class _Models(Record, frozen=True):
    data: tuple[_Listed, ...] = ()


def _price(settings: ModelSettings, endpoint: Endpoint, prices: Prices) -> Tariff | None:
    if settings.price is not None:
        return settings.price
    return price_of(settings.name, prices, None if endpoint.is_ours else endpoint.url)


def _proxy(url: URL) -> str | None:
    """The proxy that the environment names for an address; never for this machine itself.

    Looked up once, since aiohttp's own look-up starts a thread for every request.
    """
    if url.host is None or is_loopback(url.host) or proxy_bypass(f"{url.host}:{url.port}"):
        return None
    return getproxies().get(url.scheme)


def _advice(status: int, endpoint: Endpoint, vendor: Vendor, *, unpaid: bool) -> str:
    if unpaid:
        return " (the account has no quota left: asking again does not help)"
    if status == 403:
        return " (if every request is refused, check the key and the model)"
    if status == 401:
        known = "the key is not accepted" if endpoint.key is not None else "no key is set"
        return f" ({known}: set api_key, or ${vendor.key_variable})"
    if status == 404 and endpoint.url.path in ("", "/"):
        return f" (base_url has no path; most servers want one: {endpoint.url.with_query(None) / 'v1'}?)"
    if status == 404:
        return " (are the model's name and base_url right?)"
    if 300 <= status < 400:
        return " (redirects are not followed, for the key would travel with them: set base_url to the final address)"
    return ""
