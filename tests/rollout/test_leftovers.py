"""What killed processes of a run left behind is gone after the next start, and after the run's own end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deskroll.envs.interpreter.process import make_group
from deskroll.envs.interpreter.sandbox import Limits
from deskroll.host.control_group import group_parents
from deskroll.host.owner import owner_mark
from deskroll.host.runtime_folder import make_scratch_folder, runtime_root
from deskroll.rollout.control import socket_path, sockets_folder
from deskroll.rollout.leftovers import leaving_nothing

WORKER = """
import asyncio, socket
from deskroll.desktops.providers.sim.provider import SimProvider
from deskroll.envs.interpreter import Interpreter, Limits
from deskroll.rollout.control import socket_path
async def main():
    async with SimProvider():
        interpreter = Interpreter(Limits())
        await interpreter.run(["1"])
        with socket.socket(socket.AF_UNIX) as control:
            control.bind(str(socket_path("run")))
            print("up", flush=True)
            await interpreter.run(["import time; time.sleep(1000)"])
asyncio.run(main())
"""


@pytest.fixture
def mine(runtime_folder: Path) -> Iterator[list[Path]]:
    """What a live process has, this one."""
    group, folder, control = make_group(Limits()), make_scratch_folder("sim", "s"), socket_path("run")
    control.touch()
    yield [folder, control, *(group.folders if group is not None else ())]
    control.unlink()
    folder.rmdir()
    if group is not None:
        group.remove()


def kill_worker() -> list[Path]:
    """Have a worker killed at its work; returns all that it had made."""
    before = set(everything())
    with subprocess.Popen([sys.executable, "-c", WORKER], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None and worker.stdout.readline() == b"up\n"
        worker.kill()
    left = [path for path in everything() if path not in before]
    assert {path.name.split("-")[0] for path in left} >= {"sim", "run"} | ({"py"} if os.getuid() == 0 else set())
    return left


def everything() -> list[Path]:
    """Whatever bears a process's mark on this machine and in this test's folder."""
    here = owner_mark().partition("-")[0]
    places = [runtime_root(), sockets_folder(), *group_parents()]
    return [path for place in places if place.exists() for path in place.glob(f"*-{here}-*")]


async def test_a_run_removes_what_is_left_when_it_starts_and_when_it_ends(mine: list[Path]) -> None:
    left = kill_worker()
    async with leaving_nothing():
        assert not [path for path in left if path.exists()]
        left = kill_worker()
    assert not [path for path in left if path.exists()]
    assert all(path.exists() for path in mine), "what a live process has is its own"
