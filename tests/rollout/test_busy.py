"""How busy a process says it is: by what it wanted of a core, whatever else the machine does."""

from __future__ import annotations

import subprocess
import sys

import pytest

MEASURE = """
import subprocess, sys, time
from deskroll.rollout.backends.busy import BusyMeter

meter, how = BusyMeter(), sys.argv[1]
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


@pytest.mark.parametrize(("how", "least", "most"), [("spinning", 0.8, 1.2), ("idle", 0.0, 0.5)])
def test_a_process_that_computes_is_busy_and_one_that_waits_is_not(how: str, least: float, most: float) -> None:
    assert least <= float(_measure(how)[0]) <= most


def test_what_child_processes_use_cannot_be_told() -> None:
    assert _measure("parent") == ["None", "True"]


def _measure(how: str) -> list[str]:
    command = [sys.executable, "-c", MEASURE, how]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=90).stdout.split()
