"""The body of an answer over HTTP, whole and of a bounded size."""

from __future__ import annotations

import aiohttp

from deskroll.errors import SetupError


async def whole(response: aiohttp.ClientResponse, most: int) -> bytes:
    """All of it; `SetupError` where that is more than `most` bytes. (`content.read(n)` gives what has arrived.)"""
    parts, size = [], 0
    async for chunk in response.content.iter_any():
        parts.append(chunk)
        size += len(chunk)
        if size > most:
            raise SetupError(f"it answers with more than {most} bytes")
    return b"".join(parts)
