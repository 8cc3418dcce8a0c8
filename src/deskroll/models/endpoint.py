"""Endpoint: one server: its address and key, the connections to it, how many requests it may have, and how it does.

Guarantees: a request that is cancelled leaves no connection behind; redirects are not followed, and the key goes
nowhere else and stands in no message; no more is read of an answer than is allowed. An open request holds a permit of
`max_in_flight`. It knows no protocol: a `Dialect` says what is sent, and what an answer means.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TypeVar
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from deskroll.clocks import running_time, time_limit
from deskroll.errors import ModelError, plain
from deskroll.events import EventSink
from deskroll.models.base import EndpointLoad, EpisodeClock
from deskroll.models.body import Body
from deskroll.models.settings import Address, ModelSettings, is_loopback
from deskroll.models.silence import SilenceWatch

_KEEPALIVE_S = 15.0
T = TypeVar("T")
_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "User-Agent": "deskroll",
}
Reply = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body."""


class Unreachable(Exception):
    """A request brought no answer; the text says why, without addresses and headers."""

    def __init__(self, cause: str, *, unconnected: bool = False) -> None:
        super().__init__(cause)
        self.unconnected = unconnected
        """Whether there was not even a connection."""


class Endpoint:
    """Use with `async with`; any number of requests may be open at a time."""

    def __init__(
        self,
        address: Address,
        headers: Mapping[str, str],
        settings: ModelSettings,
        sink: EventSink,
        silent_after: float,
    ) -> None:
        self.address = address
        self._headers = {**_HEADERS, **headers}
        self._connect_timeout = settings.connect_timeout
        self._most_mb = settings.max_answer_mb
        self._permits = asyncio.Semaphore(settings.max_in_flight) if settings.max_in_flight else None
        self._session: aiohttp.ClientSession | None = None
        self._serial = itertools.count()
        self._open: dict[int, float] = {}
        self._calls = self._failures = 0
        self._answered_at: float | None = None
        self._last_error = ""
        self._silence = SilenceWatch(self.load, sink, silent_after)

    async def __aenter__(self) -> Endpoint:
        self._session = aiohttp.ClientSession(
            connector=_connector(self.address.socket),
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=None, connect=self._connect_timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,  # a small answer that unpacks to a large one would pass the limit
            proxy=proxy_of(self.address.url),
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._silence.close()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def slot(self, clock: EpisodeClock, what: T) -> AbstractAsyncContextManager[T]:
        """A permit for one open request; the wait for it is nobody's time. The block is given `what`."""
        return nullcontext(what) if self._permits is None else _held(self._permits, clock, what)

    async def post(self, url: URL, body: Body, headers: Mapping[str, str] | None, seconds: float) -> Reply:
        """Ask; raises `Unreachable`."""
        session, serial = self._live(), next(self._serial)
        self._open[serial] = running_time()
        self._silence.ask()
        self._calls += 1
        try:
            async with (
                time_limit(seconds),
                session.post(url, data=body, headers=headers, allow_redirects=False) as response,
            ):
                return response.status, response.headers, await self._read(response)
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error, seconds) from None
        finally:
            del self._open[serial]

    async def get(self, url: URL, seconds: float) -> Reply:
        """Look something up; raises `Unreachable`."""
        timeout = aiohttp.ClientTimeout(total=seconds, connect=self._connect_timeout)
        try:
            async with self._live().get(url, timeout=timeout, allow_redirects=False) as response:
                return response.status, response.headers, await self._read(response)
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error, seconds) from None

    def note_answer(self) -> None:
        """A request brought what was asked for."""
        self._silence.answer()
        self._answered_at = running_time()

    def note_failure(self, error: str) -> None:
        """A request brought nothing that could be used."""
        self._failures += 1
        self._last_error = error

    def load(self) -> EndpointLoad:
        """What goes on at this moment."""
        now = running_time()
        return EndpointLoad(
            url=self.address.shown,
            in_flight=len(self._open),
            oldest_s=now - next(iter(self._open.values())) if self._open else 0.0,
            since_answer_s=None if self._answered_at is None else now - self._answered_at,
            calls=self._calls,
            failures=self._failures,
            last_error=self._last_error,
        )

    def hide_key(self, text: str) -> str:
        """A text that may be shown, even where the key is in it."""
        key = self.address.key
        return plain(text.replace(key.get_secret_value(), "***") if key is not None else text, 1000)

    def without_key(self, body: bytes) -> bytes:
        """What a server says, without the key where it repeats that: before anything is cut off."""
        key = self.address.key
        return body.replace(key.get_secret_value().encode(), b"***") if key is not None else body

    def _live(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise ModelError(f"{self.address.shown}: the client is not open; use it inside `async with`")
        return self._session

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        content, parts, size = response.content, [], 0
        while chunk := await content.readany():
            parts.append(chunk)
            size += len(chunk)
            if size > self._most_mb * 1_000_000:
                raise ModelError(f"{self.address.shown} answered with more than {self._most_mb:g} MB")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _unreachable(self, error: BaseException, seconds: float) -> Unreachable:
        return Unreachable(self._cause(error, seconds), unconnected=isinstance(error, aiohttp.ClientConnectorError))

    def _cause(self, error: BaseException, seconds: float) -> str:
        """What went wrong with a connection, without what aiohttp would tell of addresses and headers."""
        hint = " (is the server up?)"
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return f"no connection within {self._connect_timeout:g} s{hint}"
        if isinstance(error, TimeoutError):
            return f"no complete answer within {seconds:g} s"
        if isinstance(error, aiohttp.ClientConnectorError):
            number = error.os_error.errno
            # asyncio's own words repeat the address; those of a name that is not found have no such number.
            reason = os.strerror(number) if number and number > 0 else error.os_error.strerror
            return f"no connection: {reason or type(error.os_error).__name__}{hint}"
        if isinstance(error, aiohttp.ServerDisconnectedError):
            return "the server closed the connection without an answer"
        if isinstance(error, aiohttp.ClientPayloadError):
            return "the answer broke off"
        if isinstance(error, OSError) and error.strerror:
            return f"the connection broke: {error.strerror}"
        return f"the connection failed: {type(error).__name__}: {error}"


@asynccontextmanager
async def _held(permits: asyncio.Semaphore, clock: EpisodeClock, what: T) -> AsyncIterator[T]:
    with clock.paused():
        await permits.acquire()
    try:
        yield what
    finally:
        permits.release()


def _connector(socket: str) -> aiohttp.BaseConnector:
    if socket:
        return aiohttp.UnixConnector(socket, limit=0, keepalive_timeout=_KEEPALIVE_S)
    return aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S)


def proxy_of(url: URL) -> str | None:
    """The proxy that the environment names for an address; never for this machine itself.

    Looked up once, since aiohttp's own look-up starts a thread for every request.
    """
    if url.host is None or is_loopback(url.host) or proxy_bypass(f"{url.host}:{url.port}"):
        return None
    return getproxies().get(url.scheme)
