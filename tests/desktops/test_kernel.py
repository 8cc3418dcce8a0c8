"""What the kernel says of processes."""

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from deskroll.desktops.guest.kernel import at_work

PASSING_ON = """
import os
there, back = os.pipe(), os.pipe()
read, write = (there[0], back[1]) if os.fork() else (back[0], there[1])
os.close(there[0] ^ back[0] ^ read)
os.close(there[1] ^ back[1] ^ write)
os.write(1, b"%d\\n" % os.getpid())
if read == back[0]:
    os.write(write, b"x")
while os.write(write, os.read(read, 1)):
    pass
"""


@pytest.fixture
def pair() -> Iterator[list[int]]:
    """Two processes of which one always has something to do."""
    with subprocess.Popen([sys.executable, "-c", PASSING_ON], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        yield [int(child.stdout.readline()) for _ in range(2)]
        child.kill()  # the other one ends at the end of its pipe


def test_work_that_is_handed_on_while_one_looks_is_seen(pair: list[int]) -> None:
    assert all(at_work(pair) for _ in range(2000))


def test_who_waits_is_not_at_work() -> None:
    with subprocess.Popen(["sleep", "300"]) as sleeper:
        process = psutil.Process(sleeper.pid)
        assert any(not at_work([process.pid]) for _ in range(2000))
        sleeper.kill()
    assert not at_work([sleeper.pid])
