"""Whose want of memory it was that a program of a desktop was killed for: its own limit's, or somebody else's."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deskroll.desktops.providers.local.watching import Watch
from deskroll.desktops.providers.local.wire import Failed, Lost
from deskroll.errors import DeathCause
from deskroll.host.control_group import CGROUP_ROOT, ControlGroup, can_make_groups
from deskroll.host.memory_watch import MemoryWatch

SMALL_MB, LARGE_MB = 40, 160
EAT = f"eaten = [bytearray(1 << 20) for _ in range({SMALL_MB * 2})]"

needs_groups = pytest.mark.skipif(not can_make_groups(), reason="this machine lets us make no control groups")


class Group(ControlGroup):
    """A group below one of its own, which stands for the machine: both have a limit."""

    def limit(self, *, own_mb: int, above_mb: int) -> None:
        folder = self.folders[0]
        file = "memory.max" if (folder / "memory.max").exists() else "memory.limit_in_bytes"
        for each, limit in ((folder, own_mb), (folder.parent, above_mb)):
            (each / file).write_text(str(limit << 20))

    def eat(self) -> None:
        """Let a program in the group take more than the smaller of the two limits, which is its end."""
        enter = [f"echo 0 > {folder}/cgroup.procs" for folder in self.folders]
        line = " && ".join([*enter, 'exec "$0" -c "$1"'])
        ended = subprocess.run(["/bin/sh", "-c", line, sys.executable, EAT], check=False)
        assert ended.returncode == -signal.SIGKILL


@pytest.fixture
def group() -> Iterator[Group]:
    name = f"test-{secrets.token_hex(4)}"
    made = Group.create(f"{name}/inner", memory_mb=4096, processes=1024)
    assert isinstance(made, Group)
    if (CGROUP_ROOT / "cgroup.controllers").exists():
        (made.folders[0].parent / "cgroup.subtree_control").write_text("+memory")
    try:
        yield made
    finally:
        made.remove()
        ControlGroup.existing(name).remove()


@pytest.fixture
def watch(group: Group) -> Iterator[MemoryWatch]:
    watch = MemoryWatch(group.folders[0])
    yield watch
    watch.close()


def let_pass(watch: MemoryWatch) -> None:
    """Look until nothing that has happened is recent."""
    for _ in range(3):
        watch.look()


@needs_groups
def test_a_kill_by_the_groups_own_limit_lies_inside_until_it_is_long_ago(group: Group, watch: MemoryWatch) -> None:
    group.limit(own_mb=SMALL_MB, above_mb=LARGE_MB)
    assert watch.cause_of_kills() is None
    group.eat()
    assert watch.cause_of_kills() is DeathCause.INSIDE
    watch.look()
    assert watch.cause_of_kills() is DeathCause.INSIDE
    let_pass(watch)
    assert watch.cause_of_kills() is None


@needs_groups
def test_a_kill_for_want_of_memory_elsewhere_is_not_held_against_a_group_that_once_was_full(
    group: Group, watch: MemoryWatch
) -> None:
    group.limit(own_mb=SMALL_MB, above_mb=LARGE_MB)
    group.eat()
    let_pass(watch)
    group.limit(own_mb=LARGE_MB, above_mb=SMALL_MB)
    group.eat()
    assert watch.cause_of_kills() is DeathCause.OUTSIDE


@needs_groups
def test_kills_for_both_reasons_at_once_leave_it_open(group: Group, watch: MemoryWatch) -> None:
    group.limit(own_mb=SMALL_MB, above_mb=LARGE_MB)
    group.eat()
    group.limit(own_mb=LARGE_MB, above_mb=SMALL_MB)
    group.eat()
    assert watch.cause_of_kills() is DeathCause.UNKNOWN


@pytest.mark.parametrize(
    ("full", "kills", "cause"),
    [
        (0, 0, None),
        (7, 0, None),
        (1, 1, DeathCause.INSIDE),
        (7, 1, DeathCause.INSIDE),
        (0, 1, DeathCause.OUTSIDE),
        (1, 2, DeathCause.UNKNOWN),
    ],
)
def test_what_the_second_version_of_control_groups_counts(
    tmp_path: Path, full: int, kills: int, cause: DeathCause | None
) -> None:
    events = tmp_path / "memory.events"
    events.write_text("low 0\nhigh 0\nmax 812\noom 3\noom_kill 3\noom_group_kill 0\n")
    watch = MemoryWatch(tmp_path)
    assert watch.cause_of_kills() is None
    events.write_text(f"low 0\nhigh 0\nmax 999\noom {3 + full}\noom_kill {3 + kills}\noom_group_kill 0\n")
    assert watch.cause_of_kills() is cause


def test_a_want_that_was_seen_before_its_kill_still_explains_it(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    events.write_text("oom 0\noom_kill 0\n")
    watch = MemoryWatch(tmp_path)
    events.write_text("oom 1\noom_kill 0\n")
    watch.look()
    watch.look()
    events.write_text("oom 1\noom_kill 1\n")
    assert watch.cause_of_kills() is DeathCause.INSIDE


def test_a_want_whose_kill_is_over_explains_no_other(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    events.write_text("oom 0\noom_kill 0\n")
    watch = MemoryWatch(tmp_path)
    events.write_text("oom 1\noom_kill 1\n")
    watch.look()
    watch.look()
    assert watch.cause_of_kills() is None
    events.write_text("oom 1\noom_kill 2\n")
    assert watch.cause_of_kills() is DeathCause.UNKNOWN


@settings(deadline=None)
@given(story=st.lists(st.sampled_from(["own kill", "own kill after a look", "foreign kill", "look"]), max_size=6))
def test_a_kill_for_a_want_elsewhere_never_lies_inside(story: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder) / "memory.events"
        events.write_text("oom 0\noom_kill 0\n")
        watch = MemoryWatch(Path(folder))
        wants = kills = 0
        for event in [*story, "foreign kill"]:
            wants += event.startswith("own")
            events.write_text(f"oom {wants}\noom_kill {kills}\n")
            if event.endswith("look"):
                watch.look()
            kills += "kill" in event
            events.write_text(f"oom {wants}\noom_kill {kills}\n")
        assert watch.cause_of_kills() in (DeathCause.OUTSIDE, DeathCause.UNKNOWN)


def test_where_no_event_tells_of_the_limit_a_kill_is_nobodys(tmp_path: Path) -> None:
    control = tmp_path / "memory.oom_control"
    control.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    watch = MemoryWatch(tmp_path)
    control.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert watch.cause_of_kills() is DeathCause.UNKNOWN


def end_of_all(first: subprocess.Popen[bytes], pid: int, memory: MemoryWatch | None = None) -> Failed:
    """What is said of a desktop whose first process is `first`, where /proc shows `pid` in its place."""
    link, owner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    guest, speaks = os.pipe()
    watch = Watch(link, guest)
    watch.first, watch.first_pid, watch.memory = os.pidfd_open(first.pid), pid, memory
    try:
        first.kill()
        heard: list[Lost] = []
        return watch.until_gone(heard.append)
    finally:
        first.wait()
        os.close(watch.first)
        for file in (guest, speaks):
            os.close(file)
        link.close()
        owner.close()


def test_a_first_process_whose_number_is_somebody_elses_by_now_is_still_gone() -> None:
    first = subprocess.Popen(["sleep", "600"])
    last = end_of_all(first, os.getpid())
    assert last == Failed(message="the first process of its namespaces died", cause=DeathCause.OUTSIDE)


@needs_groups
@pytest.mark.parametrize(
    ("own_mb", "above_mb", "cause"),
    [(SMALL_MB, LARGE_MB, DeathCause.INSIDE), (LARGE_MB, SMALL_MB, DeathCause.OUTSIDE)],
)
def test_a_desktop_that_ends_with_a_kill_for_want_of_memory(
    group: Group, watch: MemoryWatch, own_mb: int, above_mb: int, cause: DeathCause
) -> None:
    group.limit(own_mb=own_mb, above_mb=above_mb)
    group.eat()
    first = subprocess.Popen(["sleep", "600"])
    assert end_of_all(first, first.pid, watch).cause is cause
