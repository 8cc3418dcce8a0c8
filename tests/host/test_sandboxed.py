"""A sandbox held from outside: whoever is killed at whatever moment, everything inside ends, and nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import msgspec
import psutil
import pytest

from deskroll.host import bubblewrap
from deskroll.host.bubblewrap import Command, Inside
from deskroll.host.sandboxed import Sandboxed
from tests.waiting import PATIENCE_S, wait_until

INSIDE = Inside(host_name="test", folders={}, rooms={"/tmp": 2**20}, work="/tmp", environment={})
PROGRAM = ("/bin/sh", "-c", "echo up; sleep 600 & sleep 600")
SLOW_TO_DIE = ("/usr/bin/perl", "-e", "$| = 1; $kept = 'x' x (300 << 20); print qq(up\\n); sleep 600")
"""The kernel takes a while to give so much memory back."""


def made(program: tuple[str, ...] = PROGRAM, options: tuple[str, ...] = ("--as-pid-1",)) -> Command:
    return bubblewrap.command(INSIDE, program, options=options, needed_by="a test")


class Life:
    """A pipe that everything of a sandbox holds: its other end is told when nobody does any more."""

    def __init__(self) -> None:
        self.ours, self.theirs = os.pipe()

    def start(self, command: Command) -> Sandboxed:
        before = {each.pid for each in psutil.Process().children()}
        try:
            held = Sandboxed(command, stdout=self.theirs, files=(self.theirs,))
        finally:
            os.close(self.theirs)
        (self.outer,) = [each for each in psutil.Process().children() if each.pid not in before]
        return held

    def wait_for_start(self) -> None:
        assert os.read(self.ours, 3) == b"up\n"

    def require_end(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        look = select.poll()
        look.register(self.ours, select.POLLIN)
        while look.poll(max(0.0, deadline - time.monotonic()) * 1000):
            if not os.read(self.ours, 4096):
                return
        raise AssertionError("something of the sandbox lives on")


@pytest.fixture
def life() -> Iterator[Life]:
    made = Life()
    yield made
    os.close(made.ours)


@pytest.mark.parametrize("options", [("--as-pid-1",), (), ("--as-pid-1", "--die-with-parent")], ids=str)
def test_after_the_end_nothing_is_left(life: Life, options: tuple[str, ...]) -> None:
    before = set(os.listdir("/proc/self/fd"))
    held = life.start(made(options=options))
    life.wait_for_start()
    assert held.alive()
    assert held.exit_code() is None
    held.end()
    life.require_end()
    assert not held.alive()
    assert not life.outer.is_running()
    held.end()
    held.kill()
    assert set(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("moment", range(40))
def test_killed_at_any_moment_of_its_start_nothing_is_left(life: Life, moment: int) -> None:
    """Of which most are within the 100 ms that a start takes; `end` does not wait for long, nor leave anything."""
    held = life.start(made())
    time.sleep(random.Random(moment).uniform(0, 0.1))  # the moment is what is varied
    held.end()
    life.require_end()


@pytest.mark.parametrize("moment", range(40))
def test_what_a_killed_outer_process_leaves_is_ended(life: Life, moment: int) -> None:
    held = life.start(made())
    time.sleep(random.Random(moment).uniform(0, 0.1))  # as above
    signal.pidfd_send_signal(held.outer, signal.SIGKILL)
    wait_until(lambda: not held.alive(), "the outer process is dead")
    held.kill()
    life.require_end()
    assert held.exit_code() == -signal.SIGKILL
    held.end()


def stop_half_made(outer: psutil.Process) -> None:
    """Stop it soon after bubblewrap has made the first process, and the first process, too."""
    inner = wait_until(outer.children, "the first process is made")
    outer.suspend()
    inner[0].suspend()


def test_a_sandbox_that_is_stopped_half_made_is_ended(life: Life) -> None:
    held = life.start(made())
    stop_half_made(life.outer)
    held.end()
    life.require_end()


def test_a_half_made_sandbox_that_lost_its_outer_process_is_ended(life: Life) -> None:
    held = life.start(made())
    stop_half_made(life.outer)
    signal.pidfd_send_signal(held.outer, signal.SIGKILL)
    wait_until(lambda: not held.alive(), "the outer process is dead")
    held.end()
    life.require_end()


def test_an_outer_process_that_is_stopped_is_ended(life: Life) -> None:
    held = life.start(made())
    life.wait_for_start()
    signal.pidfd_send_signal(held.outer, signal.SIGSTOP)
    held.kill()
    wait_until(lambda: not held.alive(), "it does not count as alive, though nobody has seen its end")
    assert held.exit_code() is None
    held.end()
    life.require_end()


async def test_several_wait_for_its_end(life: Life) -> None:
    held = life.start(made())
    try:
        assert not await held.exits(0)
        waiting = [asyncio.create_task(held.exits(PATIENCE_S)) for _ in range(3)]
        await asyncio.to_thread(life.wait_for_start)
        assert held.alive()
        held.kill()
        assert await asyncio.gather(*waiting) == [True] * 3
        assert held.exit_code() == 128 + signal.SIGKILL
    finally:
        await held.end_soon()
    life.require_end()
    assert await held.exits(0)


async def test_after_a_soon_end_the_first_process_is_gone_though_the_outer_one_went_long_before(life: Life) -> None:
    held = life.start(made(SLOW_TO_DIE))
    await asyncio.to_thread(life.wait_for_start)
    first = os.pidfd_open(life.outer.children()[0].pid)
    try:
        signal.pidfd_send_signal(held.outer, signal.SIGKILL)
        assert await held.exits(PATIENCE_S)
        await held.end_soon()
        assert select.select([first], [], [], 0)[0], "the first process lives on"
    finally:
        os.close(first)
    life.require_end()


def test_a_plain_process_is_held_in_the_same_way(life: Life) -> None:
    held = life.start(Command(words=PROGRAM))
    life.wait_for_start()
    assert held.alive()
    held.end()
    life.require_end()


def test_what_cannot_be_started_leaves_no_file_open() -> None:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="No such file"):
        Sandboxed(msgspec.structs.replace(made(), words=("/no/such/program",)))
    assert set(os.listdir("/proc/self/fd")) <= before


@contextlib.contextmanager
def just_before(called: object, do: Callable[[], None]) -> Iterator[None]:
    """Do something when this thread is about to call that function, written in C, for the first time."""

    def look(frame: FrameType, event: str, function: object) -> None:
        if event == "c_call" and function is called:
            sys.setprofile(None)
            do()

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)


@contextlib.contextmanager
def no_file_to_be_had() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for file in taken:
            os.close(file)


def test_what_there_is_no_file_to_hold_by_is_ended(life: Life) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with contextlib.ExitStack() as stack:

        def start_and_run_out() -> None:
            life.wait_for_start()
            stack.enter_context(no_file_to_be_had())

        with pytest.raises(OSError, match="Too many open files"), just_before(os.pidfd_open, start_and_run_out):
            Sandboxed(made(), stdin=subprocess.PIPE, stdout=life.theirs, files=(life.theirs,))
    assert set(os.listdir("/proc/self/fd")) <= before
    os.close(life.theirs)
    life.require_end()


@pytest.mark.parametrize(
    "wrong", [{"files": {"/a": b"x", "/b": "no bytes"}}, {"files": {"/a": b"x"}, "needs": None}], ids=["file", "filter"]
)
def test_a_command_that_cannot_be_made_leaves_no_file_open(wrong: dict[str, object]) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(TypeError):
        bubblewrap.command(msgspec.structs.replace(INSIDE, **wrong), PROGRAM, needed_by="a test")
    assert set(os.listdir("/proc/self/fd")) <= before


def test_folders_have_whatever_names_they_have(runtime_folder: Path) -> None:
    folder = runtime_folder / "a\nb"
    folder.mkdir(exist_ok=True)
    (folder / "file").write_text("found")
    inside = Inside(host_name="t", folders={"/opt/a\nb": str(folder)}, rooms={}, work="/", environment={})
    command = bubblewrap.command(inside, ["/bin/cat", "/opt/a\nb/file"], needed_by="a test")
    held = Sandboxed(command, stdout=subprocess.PIPE, stderr=sys.stderr.fileno())
    try:
        assert held.pipes[0].read() == b"found"
    finally:
        held.pipes[0].close()
        held.end()
