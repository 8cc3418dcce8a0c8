"""A holder process for tests: `python -m tests.pool.holder ADDRESS COUNT` leases, prints what it has, and stays."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack

from deskroll.desktops.service import PoolClient


async def main(at: str, count: int) -> None:
    async with PoolClient(at, client="holder") as pool, AsyncExitStack() as stack:
        leases = [await stack.enter_async_context(pool.lease()) for _ in range(count)]
        for lease in leases:
            await lease.desktop.screenshot()
        print(json.dumps([lease.address.id for lease in leases]), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
