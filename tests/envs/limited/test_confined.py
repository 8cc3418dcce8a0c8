"""Confined functions: whatever takes one over finds nothing of the host, nor of other calls."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import random
import re
import signal
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
import pytest_asyncio

from deskroll.envs.limited import Bounds, FunctionCrashed, LimitedLost, limited
from deskroll.envs.limited.home import START, Server
from tests.prey import SECRET, Prey, put_out
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]


class Attack(NamedTuple):
    """Code that prints DONE where it succeeds, and what it must print instead."""

    name: str
    code: str
    says: str
    works_outside: bool = False
    """Without the sandbox it succeeds."""


_ABSENT = "No such file or directory"
_CONNECT = "import socket\ns = socket.socket(%s)\ns.settimeout(5)\ns.connect(%s)\nprint('DONE')"
_C = (
    "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    "def tried(*args):\n    print('DONE' if libc.syscall(*args) >= 0 else os.strerror(ctypes.get_errno()))\n"
)
ATTACKS = (
    Attack("a file", "print('DONE', open('@CANARY@').read())", _ABSENT, works_outside=True),
    Attack("/etc/passwd", "print('DONE', open('/etc/passwd').read())", _ABSENT, works_outside=True),
    Attack("a process", "import os\nos.kill(@PID@, 0)\nprint('DONE')", "not permitted", works_outside=True),
    Attack("its environment", "print('DONE', open('/proc/@PID@/environ').read())", _ABSENT, works_outside=True),
    Attack("loopback", _CONNECT % ("2", "('127.0.0.1', @PORT@)"), "refused", works_outside=True),
    Attack("a unix socket", _CONNECT % ("1", "'@SOCKET@'"), _ABSENT, works_outside=True),
    Attack("an abstract socket", _CONNECT % ("1", "'\\0@ABSTRACT@'"), "refused", works_outside=True),
    Attack("vsock", "import socket\nsocket.socket(40, 1)\nprint('DONE')", "not supported"),
    Attack("keys: kept", f"{_C}tried(@ADDKEY@, b'user', b'x', b'x', 1, -3)", "not permitted", works_outside=True),
    Attack("keys: the caller's", f"{_C}tried(@KEYCTL@, 10, -3, b'user', b'@KEY@', 0)", "not permitted"),
    Attack("io_uring", f"{_C}tried(@IOURINGSETUP@, 1, ctypes.create_string_buffer(120))", "not permitted"),
    Attack("namespaces", f"{_C}print('DONE' if libc.unshare(0x10000000) == 0 else 'not permitted')", "not permitted"),
    Attack("terminals", "import os\nos.openpty()\nprint('DONE')", f"{_ABSENT}|out of pty", works_outside=True),
    Attack("a file of its own", "open('/home/x', 'w')\nprint('DONE')", "Read-only|No such file"),
    Attack("Python's files", "import json\nopen(json.__file__, 'a')\nprint('DONE')", "Read-only|denied"),
    Attack("the server's memory", "open('/proc/1/mem', 'rb+')\nprint('DONE')", "denied|not permitted"),
    Attack("the server's files", "import os\nprint('DONE', os.listdir('/proc/1/fd'))", "denied|not permitted"),
    Attack("the server's life", "import os\nos.kill(1, 9)\nprint('DONE')", "not permitted"),
    Attack("its own memory", "import os\nopen(f'/proc/{os.getpid()}/mem', 'rb+')\nprint('DONE')", "denied"),
    Attack("a daemon", "import os\nprint('DONE' if os.fork() else os._exit(0))", "unavailable", works_outside=True),
    Attack("a thread", "import threading\nthreading.Thread(target=print).start()\nprint('DONE')", "can't start",
           works_outside=True),
)  # fmt: skip


def attack(given: bytes) -> bytes:
    """Be taken over."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(given, "attack", "exec"), {"sys": sys})
        except Exception:  # noqa: BLE001  (it is shown)
            traceback.print_exc(file=printed)
    return printed.getvalue().encode(errors="replace")


@pytest_asyncio.fixture(scope="module")
async def prey(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Prey]:
    async with put_out(tmp_path_factory.mktemp("host")) as prey:
        yield prey


@pytest.mark.parametrize("each", ATTACKS, ids=lambda each: each.name)
async def test_it_fails(each: Attack, prey: Prey) -> None:
    text = (await limited(attack, prey.fill(each.code).encode(), Bounds())).decode()
    assert re.search(each.says, text), text
    assert "DONE" not in text
    assert SECRET not in text
    prey.require_untouched()


@pytest.mark.parametrize("each", [each for each in ATTACKS if each.works_outside], ids=lambda each: each.name)
async def test_it_succeeds_without_the_sandbox(each: Attack, prey: Prey) -> None:
    text = (await limited(attack, prey.fill(each.code).encode(), Bounds(), confined=False)).decode()
    assert "DONE" in text, text
    prey.visits.clear()


async def test_a_crash_costs_that_call_only() -> None:
    with pytest.raises(FunctionCrashed, match="killed by signal 11"):
        await limited(attack, b"import os\nos.kill(os.getpid(), 11)", Bounds())
    assert await limited(attack, b"print(6 * 7)", Bounds()) == b"42\n"


async def test_what_is_killed_again_is_the_machines_failure() -> None:
    with pytest.raises(LimitedLost, match="killed by signal 9"):
        await limited(attack, b"import os\nos.kill(os.getpid(), 9)", Bounds())
    assert await limited(attack, b"print(6 * 7)", Bounds()) == b"42\n"


def outer() -> psutil.Process:
    """The process around the sandbox of this process's confined functions."""
    (found,) = [each for each in psutil.Process().children() if START in each.cmdline() and "--" in each.cmdline()]
    return found


async def test_a_call_whose_sandbox_loses_its_outer_process_is_the_machines_failure() -> None:
    """What is inside could go on, and answer."""
    await limited(attack, b"", Bounds())
    call = asyncio.create_task(limited(attack, b"import time; time.sleep(600)", Bounds(seconds=600)))
    ended = []
    for _ in range(2):
        held, first = await asyncio.to_thread(wait_until, _calling, "the call runs")
        held.kill()
        ended.append(first)
        await asyncio.to_thread(wait_until, lambda: not any(each.is_running() for each in ended), "all inside ends")
    with pytest.raises(LimitedLost, match="limits died"):
        await call
    assert await limited(attack, b"print(6 * 7)", Bounds()) == b"42\n"


def _calling() -> tuple[psutil.Process, psutil.Process] | None:
    """The outer process and the first one inside, once that has forked for a call."""
    with contextlib.suppress(psutil.Error, ValueError):
        held = outer()
        (first,) = held.children()
        return (held, first) if first.children() else None
    return None


async def test_a_sandbox_that_nobody_calls_ends_with_its_outer_process() -> None:
    await limited(attack, b"", Bounds())
    held = outer()
    (first,) = held.children()
    held.kill()
    await asyncio.to_thread(wait_until, lambda: not first.is_running(), "the server inside ends")


async def test_in_a_storm_of_kills_each_call_answers_or_is_lost_and_nothing_stays() -> None:
    chance, calls, seen = random.Random(7), [], set()
    for number in range(40):
        calls.append(asyncio.create_task(limited(attack, b"print(%d)" % number, Bounds())))
        await asyncio.sleep(chance.uniform(0, 0.15))  # the moment is what is varied
        with contextlib.suppress(psutil.Error, ValueError):
            held = outer()
            seen |= {held, *held.children(recursive=True)}
            chance.choice([held, *held.children()]).kill()
    for number, said in enumerate(await asyncio.gather(*calls, return_exceptions=True)):
        assert said == b"%d\n" % number or isinstance(said, LimitedLost), said
    assert await limited(attack, b"print(6 * 7)", Bounds()) == b"42\n"
    seen -= {held := outer(), *held.children(recursive=True)}
    await asyncio.to_thread(wait_until, lambda: not any(each.is_running() for each in seen), "all others have ended")


async def test_a_server_that_hangs_can_be_killed() -> None:
    before = {each.pid for each in psutil.Process().children(recursive=True)}
    server = Server(confined=True)
    try:
        assert await server.answers(90)
        ours = [each for each in psutil.Process().children(recursive=True) if each.pid not in before]
        (first,) = [each for each in ours if _space(each.pid) != _space(os.getpid())]
        first.suspend()
        server.kill()
        await asyncio.to_thread(wait_until, lambda: not first.is_running(), "the server that hung is gone")
    finally:
        server.end()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, None])
def test_nothing_outlives_the_calling_process(end: signal.Signals | None) -> None:
    """Killed, ended, or (None) come to its own end while a fork of it lives on and holds all of its files."""
    code = (
        "import asyncio, os, sys, time\nfrom deskroll.envs.limited import Bounds, limited\n"
        "from tests.envs.limited.test_confined import attack\n"
        "async def main():\n    await limited(attack, b'', Bounds())\n"
        "    asyncio.ensure_future(limited(attack, b'import time; time.sleep(600)', Bounds(seconds=600)))\n"
        "    await asyncio.sleep(0)\n    os.fork() or time.sleep(600)\n    print('up', flush=True)\n"
        "    await asyncio.to_thread(sys.stdin.read)\n    os._exit(0)\nasyncio.run(main())"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with psutil.Popen([sys.executable, "-c", code], cwd=ROOT, start_new_session=True, **pipes) as caller:
        try:
            assert caller.stdout.readline() == b"up\n"
            inside = [each for each in caller.children(recursive=True) if _space(each.pid) != _space(os.getpid())]
            assert inside
            caller.send_signal(end) if end else caller.stdin.close()
            caller.wait(30)
            wait_until(lambda: not any(each.is_running() for each in inside), "everything in the sandbox ends")
        finally:
            os.killpg(caller.pid, signal.SIGKILL)


def _space(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:  # it has ended
        return ""


JUDGE = """
import asyncio, os, psutil
from deskroll.envs.osworld.evaluate.native import bounded
from deskroll.envs.osworld.evaluate.native.values import File
async def main():
    print(await bounded.read("json_value", File(name="a.json", data=b"1.0"), {}))
    for process in psutil.Process().children(recursive=True):
        spaces = {os.readlink(f"/proc/{process.pid}/ns/{kind}") for kind in ("mnt", "net", "pid_for_children", "user")}
        print(process.name(), spaces & {os.readlink(f"/proc/self/ns/{kind}") for kind in os.listdir("/proc/self/ns")})
asyncio.run(main())
"""


def test_native_evaluators_are_confined() -> None:
    """What an agent left is read where nothing else can be."""
    run = subprocess.run([sys.executable, "-c", JUDGE], cwd=ROOT, capture_output=True, text=True, check=False)
    value, *processes = run.stdout.splitlines()
    assert value == "1.0", run.stderr
    assert any(re.match(r"python\S* set\(\)", each) for each in processes), processes


def test_where_there_are_no_sandboxes_the_log_says_so(runtime_folder: Path) -> None:
    fake = runtime_folder / "no-sandboxes"  # not pytest's folder: that one is closed to the user that code is
    fake.mkdir(exist_ok=True)
    (fake / "bwrap").write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    (fake / "bwrap").chmod(0o755)
    code = (
        "import asyncio, logging\nlogging.basicConfig()\nfrom deskroll.envs.limited import Bounds, limited\n"
        "from tests.envs.limited.test_limited import upper\n"
        "async def main():\n    for _ in range(2):\n        print(await limited(upper, b'abc', Bounds()))\n"
        "asyncio.run(main())"
    )
    env = {"PATH": f"{fake}:/usr/bin:/bin"}
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert run.stdout == "b'ABC'\nb'ABC'\n", run.stderr
    assert run.stderr.count("without a sandbox: bubblewrap cannot make any: No permissions") == 1
