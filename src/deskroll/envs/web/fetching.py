"""Fetcher: gets one page over HTTP, whatever the server tries.

Guarantees: every address, also that of a redirect, is checked before anything is sent there (`addresses`, `outside`);
time, bytes on the wire, bytes unpacked, header sizes and the number of redirects are bounded; no cookie, no referrer,
no credentials and no proxy of the environment is used; what goes wrong is a `PageError` in words of our own.
"""

from __future__ import annotations

import http

import aiohttp
from yarl import URL

from deskroll import __version__
from deskroll.clocks import time_limit
from deskroll.envs.web.addresses import LONGEST_URL, Rules
from deskroll.envs.web.errors import PageError
from deskroll.envs.web.outside import Outside, guarded
from deskroll.envs.web.page import Page, is_readable
from deskroll.envs.web.settings import WebSettings
from deskroll.envs.web.unpacking import ACCEPTED, Unpacker
from deskroll.errors import plain

USER_AGENT = f"deskroll/{__version__}"
MOST_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_LONGEST_HEADER = 32_768
_PIECE = 65_536
_HEADERS = {
    "User-Agent": USER_AGENT,
    "Accept": "text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.8,*/*;q=0.1",
    "Accept-Encoding": ACCEPTED,
}

_CAUSES: tuple[tuple[type[Exception], str], ...] = (
    (aiohttp.ConnectionTimeoutError, "no connection in time"),
    (aiohttp.ClientConnectorDNSError, "there is no such host"),
    (aiohttp.ClientSSLError, "its certificate or its encryption is not valid"),
    (aiohttp.ClientConnectorError, "no connection"),
    (aiohttp.ClientPayloadError, "it broke off before its end"),
    (aiohttp.ServerDisconnectedError, "it broke off before its end"),
    (aiohttp.ClientResponseError, "what the server answered is not proper HTTP"),
    (OSError, "the connection failed"),
)
"""What is said of errors; the first that fits counts."""


class Fetcher:
    """Gets pages: over one session those of the open internet, over the other those of hosts that the settings list."""

    def __init__(self, settings: WebSettings, public: aiohttp.ClientSession, trusted: aiohttp.ClientSession) -> None:
        self._rules = Rules.of(settings.allow_hosts)
        self._seconds = settings.page_seconds
        self._most = int(settings.page_mb * 1_000_000)
        self._public = public
        self._trusted = trusted

    async def fetch(self, address: str) -> Page:
        """Get a page, over redirects if need be."""
        try:
            async with time_limit(self._seconds):
                return await self._follow(self._rules.check(address))
        except TimeoutError:
            raise PageError(f"it took more than {self._seconds:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise PageError(cause(error)) from None

    async def _follow(self, url: URL) -> Page:
        for _ in range(MOST_REDIRECTS + 1):
            found = await self._get(url)
            if isinstance(found, Page):
                return found
            url = self._rules.check(_joined(url, found))
        raise PageError(f"it redirects more than {MOST_REDIRECTS} times")

    async def _get(self, url: URL) -> Page | str:
        """One request: the page, or where it redirects to."""
        using = self._trusted if self._rules.trusts(url) else self._public
        async with using.get(url, headers=_HEADERS, allow_redirects=False) as response:
            location = response.headers.get("Location")
            if response.status in _REDIRECTS and location is not None:
                return location
            if response.status not in (200, 203):
                raise PageError(f"the server answered {answered(response.status)}")
            kind = response.headers.get("Content-Type", "")
            if not is_readable(kind):
                raise PageError(f"it is {plain(kind, 60)}; only text is read: HTML, plain text, JSON, XML")
            body, cut = await read_body(response, self._most)
            return Page(url=str(url), kind=plain(kind, 200), body=body, cut=cut)


def session(connect_seconds: float, outside: Outside, *, trusted: bool) -> aiohttp.ClientSession:
    """A session that keeps nothing and follows no proxy of the environment."""
    return aiohttp.ClientSession(
        connector=guarded(outside, trusted=trusted),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
        timeout=aiohttp.ClientTimeout(total=None, connect=connect_seconds),
        auto_decompress=False,  # bounded unpacking is ours
        trust_env=False,
        max_line_size=_LONGEST_HEADER,
        max_field_size=_LONGEST_HEADER,
    )


async def read_body(response: aiohttp.ClientResponse, most: int) -> tuple[bytes, bool]:
    """What a server sends, unpacked, and whether there was more of it than `most`."""
    unpacker = Unpacker(response.headers.get("Content-Encoding", ""), most + 1)
    wire = 0
    while not unpacker.full and wire <= most:
        piece = await response.content.read(min(_PIECE, most + 1 - wire))
        if not piece:
            if not unpacker.ended:
                raise PageError("it broke off before its end")
            break
        wire += len(piece)
        unpacker.feed(piece)
    body = unpacker.unpacked()
    return body[:most], wire > most or len(body) > most


def answered(status: int) -> str:
    """A status with its usual words, not the server's."""
    try:
        return f"{status} ({http.HTTPStatus(status).phrase})"
    except ValueError:
        return str(status)


def cause(error: Exception) -> str:
    """What went wrong with a connection, without what the other side or the library would tell."""
    return next((words for kind, words in _CAUSES if isinstance(error, kind)), "it cannot be asked for")


def _joined(url: URL, location: str) -> str:
    try:
        if len(location) > LONGEST_URL or not location.isprintable():
            raise PageError("it redirects to something that is not an address")
        return str(url.join(URL(location)))
    except ValueError:
        raise PageError("it redirects to something that is not an address") from None
