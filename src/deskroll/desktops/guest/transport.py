"""HTTP to one guest: deadlines, bounded answers, and errors that name the desktop.

A guest shares its desktop with programs that a model started, so nothing it says is trusted: answers are cut off at a
size and at a time, and never unpacked.
"""

from __future__ import annotations

import asyncio
import math
import re
from typing import Protocol, TypeVar

import aiohttp
import msgspec

from deskroll.clocks import time_limit
from deskroll.desktops.base import Address
from deskroll.desktops.guest.requests import LEASE_HEADER, LOCAL_HOST, TIMEOUT_HEADER
from deskroll.errors import (
    CommandTimeout,
    DeathCause,
    DesktopError,
    DesktopLost,
    DesktopTimeout,
    GuestError,
    LeaseLost,
    plain,
)
from deskroll.host.tokens import bearer_headers

T = TypeVar("T")
MAX_ANSWER = 64 * 1024 * 1024
"""Bytes of an answer, unless a call allows for more."""
_CONNECT_S = 5.0
_LONGEST_REASON = 4000
"""Characters of an error that a guest reports; a traceback fits."""
_TIMED_OUT = re.compile(r" timed out after [\d.]+ seconds$|^Execution timeout: ")
"""How guests, OSWorld's and ours, say that they have killed a command."""
_CAUSE_S = 5.0
"""How long to wait for the word of those who keep a desktop, when it is lost."""
_MARGIN = 0.9
"""The guest is told a little less than we wait, so that its own explanation arrives in time."""


class _Refusal(msgspec.Struct):
    """An error as guests send it."""

    message: str = ""
    error: str = ""
    lost: bool = False
    cause: str = ""
    """Of a desktop that is lost: a `DeathCause`."""


class Hold(Protocol):
    """The right to use a desktop for a time: what a lease is to its client."""

    @property
    def id(self) -> str:
        """Names it in errors and requests."""

    def remaining(self) -> float:
        """Seconds for which it still holds (infinite where nothing limits it); raises `LeaseLost` when it is over."""

    async def cause_of_death(self, within: float) -> DeathCause | None:
        """What those who keep the desktop say of its death; None when they have said nothing by then."""


class Transport:
    """One keep-alive session to one guest. With a `hold`, no request begins after its end or goes on beyond it."""

    def __init__(self, address: Address, hold: Hold | None = None) -> None:
        self.address = address
        self._hold = hold
        self.unanswered = 0
        """Requests under way, and those that were given up without an answer: they may still arrive, at any time."""
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        """The HTTP session, made on first use inside the running loop."""
        if self._session is None:
            headers = bearer_headers(self.address.token)
            if self._hold is not None:
                headers[LEASE_HEADER] = self._hold.id
            self._session = aiohttp.ClientSession(
                connector=_connector(self.address.endpoint), headers=headers, auto_decompress=False, trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )  # fmt: skip
        return self._session

    def url(self, path: str) -> str:
        """The full address of an endpoint."""
        base = f"http://{LOCAL_HOST}" if self.address.endpoint.startswith("unix:") else self.address.endpoint
        return f"{base}{path}"

    async def request(
        self,
        method: str,
        path: str,
        *,
        timeout: float,
        body: bytes | aiohttp.FormData | None = None,
        max_answer: int = MAX_ANSWER,
    ) -> bytes:
        """The body of a 200 answer; everything else raises."""
        status, answer = await self.exchange(method, path, timeout=timeout, body=body, max_answer=max_answer)
        if status != 200:
            raise await self.failure(method, path, status, answer)
        return answer

    async def exchange(
        self, method: str, path: str, *, timeout: float, body: bytes | aiohttp.FormData | None, max_answer: int
    ) -> tuple[int, bytes]:
        """Status and body of an answer, whatever they are."""
        what = f"{method} {path}"
        left = self.require_held()
        headers = {TIMEOUT_HEADER: f"{min(timeout, left) * _MARGIN:.3f}"}
        if isinstance(body, bytes):
            headers["Content-Type"] = "application/json"
        self.unanswered += 1
        try:
            async with (
                asyncio.timeout(None if math.isinf(left) else left),  # by the clock of whoever takes the desktop back
                time_limit(timeout),
                self.session().request(
                    method, self.url(path), data=body, headers=headers, timeout=_NO_TIMEOUT, allow_redirects=False
                ) as response,
            ):
                answer = response.status, await self._read(response, what, max_answer)
                self.unanswered -= 1
                return answer
        except TimeoutError:
            self.require_held(expired=left < timeout)
            raise DesktopTimeout(
                f"desktop {self.address.id} did not answer {what} within {timeout:g} s; it may be wedged: replace it"
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            self.require_held()
            message = f"desktop {self.address.id} is gone: {what}: {type(error).__name__}: {error}"
            raise DesktopLost(message, await self._cause(DeathCause.UNKNOWN)) from error

    def require_held(self, *, expired: bool = False) -> float:
        """Seconds for which the desktop may still be used; raises `LeaseLost` when it is the lease that ended."""
        if self._hold is None:
            return math.inf
        left = self._hold.remaining()
        if expired:
            raise LeaseLost(f"lease {self._hold.id} on desktop {self.address.id} ended during a request")
        return left

    async def _read(self, response: aiohttp.ClientResponse, what: str, limit: int) -> bytes:
        parts, size = [], 0
        async for chunk in response.content.iter_any():
            parts.append(chunk)
            size += len(chunk)
            if size > limit:
                raise DesktopError(f"desktop {self.address.id} answered {what} with more than {limit} bytes")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _cause(self, told: DeathCause) -> DeathCause:
        """Where the cause of a loss lies: as those say who keep the desktop, else as its guest did."""
        known = await self._hold.cause_of_death(_CAUSE_S) if self._hold is not None else None
        return told if known is None else known

    async def failure(self, method: str, path: str, status: int, answer: bytes) -> DesktopError:
        """What an answer that is no 200 means; a `GuestError` where it is about the one request alone."""
        if status == 401 and self._hold is not None:
            return LeaseLost(
                f"lease {self._hold.id} on desktop {self.address.id} is over: its address is no longer valid"
            )
        try:
            self.require_held()
        except LeaseLost as error:
            return error
        try:
            refusal = msgspec.json.decode(answer, type=_Refusal)
        except msgspec.MsgspecError:
            refusal = _Refusal(message=answer[:500].decode(errors="replace"))
        reason = plain(refusal.message or refusal.error, _LONGEST_REASON, keep="\n\t") or f"status {status}"
        message = f"desktop {self.address.id}: {method} {path}: {reason}"
        if refusal.lost:
            return DesktopLost(message, await self._cause(_believed(refusal.cause)))
        if status == 504:
            return DesktopTimeout(message)
        if _TIMED_OUT.search(refusal.message):
            return CommandTimeout(message, status)
        return GuestError(message, status)

    def decode(self, answer: bytes, kind: type[T], what: str, *, packed: bool = False) -> T:
        """An answer in JSON (or MessagePack) as a record; raises `DesktopError` when the guest talks nonsense."""
        try:
            if packed:
                return msgspec.msgpack.decode(answer, type=kind)
            return msgspec.json.decode(answer, type=kind)
        except msgspec.MsgspecError as error:
            raise DesktopError(f"desktop {self.address.id} answered {what} with something else: {error}") from error

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


# Deadlines are not aiohttp's, so that they hold for connecting, sending and reading alike.
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)


def _believed(cause: str) -> DeathCause:
    """What a guest says of its death. That it came from outside would acquit who acts inside, who may have said it."""
    return DeathCause.INSIDE if cause == DeathCause.INSIDE else DeathCause.UNKNOWN


def _connector(endpoint: str) -> aiohttp.BaseConnector:
    if endpoint.startswith("unix:"):
        return aiohttp.UnixConnector(path=endpoint.removeprefix("unix:"), limit=0)
    return aiohttp.TCPConnector(limit=0)
