"""Asking for a file that a task names, over the host's network, with the guard that pages of the web have.

Guarantees: nothing is sent to an address of this machine or of a private network unless the settings say that tasks may
(`allow_private_downloads`), or it is a mirror that they name; each redirect is checked as if it were the first address.
A proxy of the environment is used where it serves the address, and looks up names by itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from deskroll.envs.web.addresses import check_host
from deskroll.envs.web.errors import PageError
from deskroll.envs.web.outside import Outside, guarded
from deskroll.errors import SetupError, plain

MOST_REDIRECTS = 10
_REDIRECTS = (301, 302, 303, 307, 308)
_CONNECT_S = 30.0


@asynccontextmanager
async def asking(source: str, *, is_mirror: bool, private: bool) -> AsyncIterator[aiohttp.ClientResponse]:
    """What is at an address, over redirects if need be; `private`: wherever that is."""
    url = _read(source)
    mirror = url.origin() if is_mirror else None
    try:
        for _ in range(MOST_REDIRECTS + 1):
            async with (
                _session(url, free=private or url.origin() == mirror) as session,
                session.get(url, allow_redirects=False, proxy=_proxy(url)) as response,
            ):
                location = response.headers.get("Location")
                if response.status not in _REDIRECTS or location is None:
                    yield response
                    return
            url = _read(location, url)
    except PageError as error:
        raise SetupError(
            f"{plain(str(url))} is not fetched: {error}. Where files of tasks are meant to come from this machine or "
            "its network, set allow_private_downloads, or name a mirror (mirrors)"
        ) from None
    raise SetupError(f"{plain(source)} redirects more than {MOST_REDIRECTS} times")


def _read(text: str, base: URL | None = None) -> URL:
    try:
        url = URL(text) if base is None else base.join(URL(text))
        if url.scheme in ("http", "https") and url.host:
            return url
    except ValueError:
        pass
    raise SetupError(f"{plain(text)!r} is not an address")


def _session(url: URL, *, free: bool) -> aiohttp.ClientSession:
    if not free:
        check_host(url.raw_host or "")
    connector = None if free or _proxy(url) else guarded(Outside(), trusted=False)
    return aiohttp.ClientSession(
        connector=connector, timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S), trust_env=False
    )


def _proxy(url: URL) -> str | None:
    return None if proxy_bypass(url.host or "") else getproxies().get(url.scheme)
