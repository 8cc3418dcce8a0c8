"""Looker: asks one server how it does: `/health`, and where it is a vLLM, `/metrics` for its own queue.

A server that knows no `/health` answers all the same, and so lives. What is no vLLM is asked for its queue once.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Self

import aiohttp

from deskroll.host.tokens import bearer_headers
from deskroll.models.endpoint import proxy_of
from deskroll.models.settings import read_address
from deskroll.types import Record

_DEADLINE_S = 10.0
_LARGEST = 4 * 1024**2
_NOT_THERE = (404, 405, 501)
_GAUGE = re.compile(rb"^vllm:num_requests_(running|waiting)(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)


class Seen(Record, frozen=True):
    """What a look found."""

    error: str = ""
    """Why it cannot be asked; empty: it can."""
    running: int | None = None
    """Requests that run in it; None: it does not say."""
    waiting: int = 0


class Looker:
    """Use with `async with`."""

    def __init__(self, url: str, key: str = "") -> None:
        address = read_address(url, "url")
        self._root = address.url.with_path("/").with_query(None)
        connector = aiohttp.UnixConnector(address.socket) if address.socket else aiohttp.TCPConnector(limit=2)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=_DEADLINE_S), headers=bearer_headers(key),
            proxy=None if address.socket else proxy_of(address.url),
        )  # fmt: skip
        self._counts = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._session.close()

    async def look(self) -> Seen:
        """How it does at this moment."""
        try:
            async with self._session.get(self._root / "health", allow_redirects=False) as response:
                if response.status >= 500:
                    return Seen(error=f"/health answers {response.status}")
        except TimeoutError:
            return Seen(error=f"no answer to /health within {_DEADLINE_S:g} s")
        except (aiohttp.ClientError, OSError) as error:
            return Seen(error=f"/health: {type(error).__name__}")
        return await self._count() if self._counts else Seen()

    async def _count(self) -> Seen:
        """What it says of its queue; that it says nothing is no fault of it."""
        try:
            async with self._session.get(self._root / "metrics", allow_redirects=False) as response:
                self._counts = response.status not in _NOT_THERE
                if response.status != 200:
                    return Seen()
                text = await _read(response)
        except (aiohttp.ClientError, OSError):
            return Seen()
        found = Counter[bytes]()
        for name, number in _GAUGE.findall(text):  # one of each for every engine behind it
            found[name] += int(float(number))
        self._counts = b"running" in found
        return Seen(running=found[b"running"], waiting=found[b"waiting"]) if self._counts else Seen()


async def _read(response: aiohttp.ClientResponse) -> bytes:
    text = bytearray()
    async for chunk in response.content.iter_any():
        text += chunk
        if len(text) > _LARGEST:
            break
    return bytes(text)
