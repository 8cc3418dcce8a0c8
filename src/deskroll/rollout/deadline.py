"""A limit on time whose passing is a failure of a class."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from deskroll.errors import DeskrollError


@asynccontextmanager
async def within(seconds: float | None, error: type[DeskrollError], what: str) -> AsyncIterator[None]:
    """End the block after that long, with an error that says what took too long."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise error(f"{what} did not end within {seconds:g} s") from None
