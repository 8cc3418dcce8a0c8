"""ServerControl: HTTP to one server over its unix socket.

Knows no retries: what brings no answer is a `ModelError` that says why. Cancelled, a request leaves no connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import aiohttp
from pydantic import JsonValue

from deskroll.errors import ModelError

_BASE = "http://vllm"
_MAX_ANSWER = 64_000_000


class ServerControl:
    """Use with `async with`. A `weights.proof.Control`."""

    def __init__(self, socket: Path, timeout: float = 600.0) -> None:
        """`timeout`: of one request, in seconds; loading weights is one."""
        self.socket = socket
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> ServerControl:
        # A connection for each request: one that the server gives up at this moment would lose a request that must
        # not be made twice, and connecting to a socket costs nothing.
        connector = aiohttp.UnixConnector(path=str(self.socket), limit=0, force_close=True)
        self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout)
        return self

    async def __aexit__(self, *exc: object) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def get(self, path: str, timeout: float | None = None) -> tuple[int, bytes]:
        """Status and body; raises `ModelError`."""
        return await self._ask("GET", path, None, None, timeout)

    async def post(
        self, path: str, *, json: JsonValue = None, params: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Status and body; raises `ModelError`."""
        return await self._ask("POST", path, json, params, None)

    async def _ask(
        self, method: str, path: str, json: JsonValue, params: Mapping[str, str] | None, timeout: float | None
    ) -> tuple[int, bytes]:
        if self._session is None:
            raise ModelError(f"{path}: the client is not open; use it inside `async with`")
        limit = self._timeout if timeout is None else aiohttp.ClientTimeout(total=timeout)
        try:
            async with self._session.request(
                method, f"{_BASE}{path}", json=json, params=params, timeout=limit
            ) as response:
                body = await response.content.read(_MAX_ANSWER)
                while part := await response.content.read(_MAX_ANSWER):
                    body += part
                    if len(body) > _MAX_ANSWER:
                        raise ModelError(f"{path} answered with more than {_MAX_ANSWER / 1e6:g} MB")
                return response.status, body
        except TimeoutError:
            raise ModelError(f"{path}: no complete answer within {limit.total:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ModelError(f"{path}: {type(error).__name__}: {error}") from None
