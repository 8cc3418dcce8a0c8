"""A session keyring of one's own: the starter's keys are out of reach, and what is kept stays with its keeper."""

from __future__ import annotations

import subprocess
import sys

from tests.prey import CALLS

SHOW = f"""
import ctypes, os
from deskroll.host.keyring import leave_session_keyring
libc = ctypes.CDLL(None, use_errno=True)
def search(name):
    return libc.syscall({CALLS["KEYCTL"]}, 10, -3, b"user", name, 0) >= 0
def keep(name):
    assert libc.syscall({CALLS["ADDKEY"]}, b"user", name, b"x", 1, -3) >= 0
leave_session_keyring()
keep(b"outer")
if (child := os.fork()) == 0:
    print(search(b"outer"), flush=True)
    leave_session_keyring()
    keep(b"inner")
    print(search(b"outer"), search(b"inner"), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(search(b"outer"), search(b"inner"))
"""


def test_a_keyring_of_its_own() -> None:
    run = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["True", "False True", "True False"]
