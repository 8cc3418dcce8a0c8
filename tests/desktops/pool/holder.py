"""A holder process for tests, `python -m tests.desktops.pool.holder ADDRESS COUNT [fork]`: leases, says so, stays."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from contextlib import AsyncExitStack

from deskroll.desktops.service import PoolClient


async def main(at: str, count: int, fork: bool) -> None:
    async with PoolClient(at, client="holder") as pool, AsyncExitStack() as stack:
        leases = [await stack.enter_async_context(pool.lease()) for _ in range(count)]
        for lease in leases:
            await lease.desktop.screenshot()
        if fork and os.fork() == 0:
            time.sleep(60)  # a child that has all our sockets, and outlives us
            os._exit(0)
        print(json.dumps([lease.address.id for lease in leases]), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), "fork" in sys.argv[3:]))
