"""WorkerZygote: the zygote of all workers: one comes up within milliseconds, also one to an episode."""

from __future__ import annotations

import asyncio
import socket

from deskroll.errors import BackendLost, WorkerLost
from deskroll.host.zygote import ZygoteHandle


class WorkerZygote(ZygoteHandle):
    """`keep`: the run's lock, which so lasts until the last worker is gone."""

    def __init__(self, keep: tuple[int, ...] = ()) -> None:
        target = "deskroll.rollout.backends.worker:work"
        super().__init__(target, forks="worker", refused=WorkerLost, gone=BackendLost, keep=keep)

    async def worker(self) -> tuple[int, socket.socket, asyncio.Future[int]]:
        """A new worker: its pid, the socket to it, and the code with which it will have ended."""
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:  # too many files are open
            raise WorkerLost(f"no worker can be started: {error}") from error
        try:
            with theirs:
                fork = await self.fork(files=[theirs.fileno()])
        except BaseException:
            ours.close()  # a worker that was started all the same sees that, and ends
            raise
        return fork.pid, ours, fork.end
