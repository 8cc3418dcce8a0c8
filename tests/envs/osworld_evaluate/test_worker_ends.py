"""A worker of upstream's evaluators that is killed while it starts: needs no evaluators, since it never gets there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from pathlib import Path

import psutil
import pytest

from deskroll.envs.osworld.evaluate.upstream.process import Worker
from deskroll.errors import EvaluatorError
from tests.waiting import wait_until


def _runs(process: psutil.Process) -> bool:
    """Whether it has not ended; one that has is seen until the machine's first process cares, which may take long."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("inner", [False, True])
async def test_killed_at_any_moment_of_its_start_nothing_is_left(inner: bool, runtime_folder: Path) -> None:
    chance, seen, files = random.Random(5), set(), len(os.listdir("/proc/self/fd"))
    for _ in range(12):
        worker = Worker(runtime_folder)
        task = asyncio.create_task(worker.start())
        await asyncio.sleep(chance.uniform(0, 0.15))  # the moment is what is varied
        for outer in psutil.Process().children():
            with contextlib.suppress(psutil.Error, IndexError):
                if not any(each.endswith("/worker.py") for each in outer.cmdline()):
                    continue  # another test's
                seen |= {outer, *outer.children(recursive=True)}
                (outer.children()[0] if inner else outer).kill()
        with pytest.raises(EvaluatorError):
            await task
        await worker.end()
        assert not worker.folder.exists()
    await asyncio.to_thread(wait_until, lambda: not any(map(_runs, seen)), "all of them have ended")
    await asyncio.to_thread(wait_until, lambda: len(os.listdir("/proc/self/fd")) <= files + 2, "no file stays open")
