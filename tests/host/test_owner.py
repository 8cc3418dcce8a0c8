"""Owners: which process is meant, whoever has its number by now."""

from __future__ import annotations

import os
import subprocess
import sys

from deskroll.host.owner import is_left, owner_mark, process_start


def test_a_process_that_is_dead_and_not_waited_for_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert process_start(child.pid) == 0
    finally:
        child.wait()


def test_the_mark_of_a_process_tells_whether_it_is_gone() -> None:
    script = "from deskroll.host.owner import owner_mark; print(owner_mark())"
    gone = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
    host, pid, start = owner_mark().split("-")
    assert is_left(gone)
    assert not is_left(owner_mark())
    assert is_left(f"{host}-{pid}-{int(start) + 1}"), "its number is somebody else's by now"
    assert not is_left(f"elsewhere-{pid}-{int(start) + 1}"), "a process that cannot be seen from here"
