"""Confined calls that run at the same time: one that is taken over does nothing to another."""

from __future__ import annotations

import asyncio
import os
import re

import pytest

from deskroll.envs.limited import Bounds, FunctionCrashed, limited
from tests.envs.limited.test_confined import Attack, attack

_FIND = """
import ctypes, fcntl, os, resource, signal, socket, time
def others():
    return [int(each) for each in os.listdir('/proc') if each.isdigit() and int(each) not in (1, os.getpid())]
def state():
    limits = [resource.getrlimit(getattr(resource, each)) for each in dir(resource) if each.startswith('RLIMIT_')]
    return limits, os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0), os.sched_getscheduler(0), os.getpgid(0)
libc = ctypes.CDLL(None, use_errno=True)
def tried(*args):
    print('DONE' if libc.syscall(*args) >= 0 else os.strerror(ctypes.get_errno()))
"""
VICTIM = f"""{_FIND}
before = state()
while not others():
    time.sleep(0.01)
libc.prctl(15, b'seen')
while others():
    time.sleep(0.01)
print('unhurt' if state() == before else (before, state()))
"""
ATTACKER = rf"""{_FIND}
while not others():
    time.sleep(0.01)
V = others()[0]
while open(f'/proc/{{V}}/comm').read() != 'seen\n':
    time.sleep(0.01)
"""
_INFO = "info = (ctypes.c_int * 32)(9, 0, -1)\n"
_SIGIO = (
    "a, b = socket.socketpair()\n%s\nfcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)\n"
    "b.send(b'x')\nprint('DONE')"
)
_NO = "not permitted"
ATTACKS = (
    Attack("kill", "os.kill(V, 9)\nprint('DONE')", _NO),
    Attack("kill all", "os.kill(-1, 9)\nprint('DONE')", _NO),
    Attack("kill its group", "os.killpg(V, 9)\nprint('DONE')", _NO),
    Attack("stop", "os.kill(V, 19)\nprint('DONE')", _NO),
    Attack("tkill", "tried(@TKILL@, V, 9)", _NO),
    Attack("tgkill", "tried(@TGKILL@, V, V, 9)", _NO),
    Attack("rt_sigqueueinfo", f"{_INFO}tried(@RTSIGQUEUEINFO@, V, 9, info)", _NO),
    Attack("rt_tgsigqueueinfo", f"{_INFO}tried(@RTTGSIGQUEUEINFO@, V, V, 9, info)", _NO),
    Attack("pidfd", "signal.pidfd_send_signal(os.pidfd_open(V), 9)\nprint('DONE')", _NO),
    Attack("a folder as pidfd", "tried(@PIDFDSENDSIGNAL@, os.open(f'/proc/{V}', os.O_DIRECTORY), 9, None, 0)", _NO),
    Attack("limits", "resource.prlimit(V, resource.RLIMIT_CPU, (1, 1))\nprint('DONE')", _NO),
    Attack("priority", "os.setpriority(os.PRIO_PROCESS, V, 19)\nprint('DONE')", _NO),
    Attack("priority of all", "os.setpriority(os.PRIO_USER, 0, 19)\nprint('DONE')", _NO),
    Attack("cores", "os.sched_setaffinity(V, {min(os.sched_getaffinity(0))})\nprint('DONE')", _NO),
    Attack("scheduler", "os.sched_setscheduler(V, os.SCHED_IDLE, os.sched_param(0))\nprint('DONE')", _NO),
    Attack("parameters", "os.sched_setparam(V, os.sched_param(0))\nprint('DONE')", _NO),
    Attack("scheduler, by sched_setattr", "tried(@SCHEDSETATTR@, V, (ctypes.c_uint * 12)(48, 5), 0)", _NO),
    Attack("input and output", "tried(@IOPRIOSET@, 1, V, 3 << 13)", _NO),
    Attack("a signal for input", _SIGIO % "fcntl.fcntl(a, fcntl.F_SETOWN, V)", _NO),
    Attack("SIGKILL for input",
           _SIGIO % "fcntl.fcntl(a, fcntl.F_SETOWN, V)\nfcntl.fcntl(a, fcntl.F_SETSIG, 9)", _NO),
    Attack("a signal for input, by another way",
           _SIGIO % "import struct\nfcntl.fcntl(a, 15, struct.pack('ii', 1, V))", _NO),
    Attack("a signal for input, by ioctl", _SIGIO % "import struct\nfcntl.ioctl(a, 0x8901, struct.pack('i', V))", _NO),
    Attack("its group, to be kept from one's end", "os.setpgid(0, V)\nprint('DONE')", _NO),
    Attack("pages", "tried(@MOVEPAGES@, V, 0, None, None, None, 0)", _NO),
    Attack("nodes", "tried(@MIGRATEPAGES@, V, 0, None, None)", _NO),
    Attack("a file for it to find", "open('/tmp/found', 'w')\nprint('DONE')", "Read-only|No such file"),
)  # fmt: skip
_NUMBERS = {
    "TKILL": (200, 130), "TGKILL": (234, 131), "RTSIGQUEUEINFO": (129, 138), "RTTGSIGQUEUEINFO": (297, 240),
    "PIDFDSENDSIGNAL": (424, 424), "SCHEDSETATTR": (314, 274), "IOPRIOSET": (251, 30), "MOVEPAGES": (279, 239),
    "MIGRATEPAGES": (256, 238),
}  # fmt: skip


def filled(code: str) -> str:
    for name, numbers in _NUMBERS.items():
        code = code.replace(f"@{name}@", str(numbers[os.uname().machine == "aarch64"]))
    return code


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="no two calls run at once here")
@pytest.mark.parametrize("each", ATTACKS, ids=lambda each: each.name)
async def test_it_fails_and_the_other_call_is_unhurt(each: Attack) -> None:
    victim = asyncio.create_task(limited(attack, VICTIM.encode(), Bounds()))
    text = (await limited(attack, (ATTACKER + filled(each.code)).encode(), Bounds())).decode()
    assert re.search(each.says, text), text
    assert "DONE" not in text
    assert await victim == b"unhurt\n"


OWN = {
    "a signal that is handled": "signal.signal(10, lambda *_: print('heard'))\nos.kill(os.getpid(), 10)",
    "raise": "signal.signal(10, lambda *_: print('heard'))\nsignal.raise_signal(10)",
    "limits": "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\nresource.prlimit(os.getpid(), resource.RLIMIT_CPU)\n"
    "print('heard')",
    "cores": "os.sched_setaffinity(0, os.sched_getaffinity(0))\nprint('heard')",
    "descriptors": "fcntl.fcntl(1, fcntl.F_GETFD)\nprint('heard')",
}


@pytest.mark.parametrize("name", OWN)
async def test_to_itself_it_may_do_all_this(name: str) -> None:
    assert await limited(attack, (_FIND + OWN[name]).encode(), Bounds()) == b"heard\n"


async def test_an_abort_is_its_own_crash() -> None:
    with pytest.raises(FunctionCrashed, match="killed by signal 6"):
        await limited(attack, b"import os\nos.abort()", Bounds())
