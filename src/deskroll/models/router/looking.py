"""Looker: asks one server how it does: `/health`, and where it is a vLLM, `/metrics` for its own queue.

A server that knows no `/health` answers all the same, and so lives. What is no vLLM is asked for its queue once.
"""

from __future__ import annotations

import re
from typing import Self

import aiohttp

from deskroll.host.tokens import bearer_headers
from deskroll.models.settings import read_address
from deskroll.types import Record

_DEADLINE_S = 10.0
_LARGEST = 4 * 1024**2
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
        timeout = aiohttp.ClientTimeout(total=_DEADLINE_S)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, headers=bearer_headers(key))
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
            return await self._count() if self._counts else Seen()
        except TimeoutError:
            return Seen(error=f"no answer to /health within {_DEADLINE_S:g} s")
        except (aiohttp.ClientError, OSError) as error:
            return Seen(error=f"/health: {type(error).__name__}")

    async def _count(self) -> Seen:
        async with self._session.get(self._root / "metrics", allow_redirects=False) as response:
            if response.status != 200:
                self._counts = False
                return Seen()
            found = {name: int(float(number)) for name, number in _GAUGE.findall(await response.content.read(_LARGEST))}
        if b"running" not in found:
            self._counts = False
            return Seen()
        return Seen(running=found[b"running"], waiting=found.get(b"waiting", 0))
