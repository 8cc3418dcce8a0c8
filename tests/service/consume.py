"""A consumer in a process of its own: `consume.py RUN NAME LOG [STOP_AFTER]`.

It writes "read KEY" when a group comes and "done KEY" when that is durable; after so many it reads one more, and waits
to be killed.
"""

import asyncio
import os
import sys

from deskroll.service.stream import GroupStream


async def main(run: str, name: str, log: str, stop_after: str = "-1") -> None:
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    left = int(stop_after)
    async with GroupStream(run, name) as stream:
        async for group in stream:
            key = f"{group.round} {group.task} {group.end} {len(group.episodes)}"
            os.write(file, f"read {key}\n".encode())
            if not left:
                await asyncio.Event().wait()
            await group.done()
            os.write(file, f"done {key}\n".encode())
            left -= 1


asyncio.run(main(*sys.argv[1:]))
