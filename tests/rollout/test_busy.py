"""How busy a process says it is: by what it wanted of a core and of its disk, whatever else the machine does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MEASURE = """
import subprocess, sys, time
from deskroll.rollout.backends.busy import BusyMeter
from deskroll.store import Storage

how, storage = sys.argv[1], Storage.at(sys.argv[2])
meter = BusyMeter(storage)
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE) if how == "parent" else None
until = time.monotonic() + 0.5
while (left := until - time.monotonic()) > 0:
    if how == "idle":
        time.sleep(left)
print(meter.read())
if child is not None:
    child.communicate()
    print(meter.read() is not None)
"""

WRITE = """
import asyncio, os, sys, time
from deskroll.errors import StoreError
from deskroll.rollout.backends.busy import BusyMeter
from deskroll.store import Storage
from deskroll.store.commit import Commit

async def main(folder):
    storage, pipe = Storage.at(folder), f"{folder}/pipe"  # to read a pipe takes as long as nobody writes to it
    writing = asyncio.create_task(storage.commits.add(Commit(folder, [pipe], [], (pipe, f"{folder}/never"))))
    while not storage.commits.work_s:
        await asyncio.sleep(0.01)
    meter, until = BusyMeter(storage), time.monotonic() + 0.5
    while (left := until - time.monotonic()) > 0:
        await asyncio.sleep(left)
    print(meter.read())
    os.close(os.open(pipe, os.O_WRONLY))
    try:
        await writing
    except StoreError:
        pass

asyncio.run(main(sys.argv[1]))
"""


THREADS = """
import asyncio, sys, time
from deskroll.rollout.backends.busy import BusyMeter
from deskroll.store import Storage

def spin():
    until = time.thread_time() + 0.3
    while time.thread_time() < until:
        pass

async def main(folder):
    meter, begun = BusyMeter(Storage.at(folder)), time.monotonic()
    await asyncio.gather(asyncio.to_thread(spin), asyncio.to_thread(spin))
    print(meter.read() * (time.monotonic() - begun))

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize(("how", "least", "most"), [("spinning", 0.8, 1.2), ("idle", 0.0, 0.5)])
def test_a_process_that_computes_is_busy_and_one_that_waits_is_not(
    how: str, least: float, most: float, tmp_path: Path
) -> None:
    assert least <= float(_measure(how, str(tmp_path))[0]) <= most


def test_one_that_waits_for_its_disk_is_busy(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    command = [sys.executable, "-c", WRITE, str(tmp_path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=90)
    assert 0.5 <= float(done.stdout) <= 1.2


def test_one_that_computes_in_threads_is_busy(tmp_path: Path) -> None:
    command = [sys.executable, "-c", THREADS, str(tmp_path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=90)
    assert float(done.stdout) >= 0.55, "of the 0.6 seconds that they took"


def test_what_child_processes_use_cannot_be_told(tmp_path: Path) -> None:
    assert _measure("parent", str(tmp_path)) == ["None", "True"]


def test_what_uploads_take_cannot_be_told() -> None:
    assert _measure("idle", "memory://runs/one") == ["None"]


def _measure(how: str, place: str) -> list[str]:
    command = [sys.executable, "-c", MEASURE, how, place]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=90).stdout.split()
