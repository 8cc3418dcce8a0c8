"""Functions within limits: what they may take, what comes back, and that nothing of them stays behind."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from deskroll.envs.limited import (
    Bounds,
    Budget,
    BudgetSpent,
    FunctionCrashed,
    FunctionFailed,
    LimitedLost,
    LimitExceeded,
)
from deskroll.envs.limited import limited as confined
from deskroll.errors import FailureClass
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]

limited = functools.partial(confined, confined=False)
"""Most functions here leave notes in files, and tell of processes by the host's numbers."""


def upper(given: bytes) -> bytes:
    return given.upper()


def pid(given: bytes) -> bytes:
    return str(os.getpid()).encode()


def environment(given: bytes) -> bytes:
    own = Path("/proc/self/environ").read_bytes()  # what it was started with, whatever was done to it since
    return json.dumps([dict(os.environ), own.decode()]).encode()


def modules(given: bytes) -> bytes:
    return json.dumps(sorted(sys.modules)).encode()


def bad(given: bytes) -> bytes:
    raise LookupError("no \x1b[31m" + given.decode())


def endless(given: bytes) -> bytes:
    Path(given.decode()).write_text(str(os.getpid()))
    while True:
        time.sleep(1)


def busy(given: bytes) -> bytes:
    while True:
        pass


def greedy(given: bytes) -> bytes:
    return bytes(len(bytearray(int(given))) - int(given))


def large(given: bytes) -> bytes:
    return bytes(int(given))


def crash(given: bytes) -> bytes:
    ctypes.string_at(0)
    return b""


def leave(given: bytes) -> bytes:
    os._exit(3)


def parents(given: bytes) -> bytes:
    """Start another process that outlives this one, unless somebody looks after it."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    return str(child.pid).encode()


def timed(given: bytes) -> bytes:
    began = time.monotonic()
    time.sleep(0.2)
    return json.dumps([began, time.monotonic()]).encode()


def spin(given: bytes) -> bytes:
    began = time.process_time()
    while time.process_time() - began < float(given):
        pass
    return b"done"


def crowded(given: bytes) -> bytes:
    """Compute on a core that three others compute on, too."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for _ in range(3):
        if os.fork() == 0:
            spin(b"60")
    return spin(given)


def files(given: bytes) -> bytes:
    print("this is dropped", file=sys.stderr, flush=True)
    kept = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            kept[number] = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            pass  # the one that the list was read from
    return json.dumps(kept).encode()


def first_time(given: bytes) -> bool:
    """Whether nobody was here before; leaves a note."""
    try:
        Path(given.decode()).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def server_killed_once(given: bytes) -> bytes:
    if first_time(given):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
    return b"again"


def server_stopped_once(given: bytes) -> bytes:
    if first_time(given):
        os.kill(os.getppid(), signal.SIGSTOP)
        time.sleep(600)
    return b"again"


def killed_once(given: bytes) -> bytes:
    if first_time(given):
        os.kill(os.getpid(), signal.SIGKILL)
    return b"again"


def sign(given: bytes) -> bytes:
    with Path(given.decode()).open("a") as file:
        file.write(f"{os.getpid()}\n")
    return b""


def server_killed(given: bytes) -> bytes:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)
    return b""


def killed(given: bytes) -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


async def test_what_a_function_returns_comes_back() -> None:
    assert await limited(upper, b"abc", Bounds()) == b"ABC"
    assert await limited(upper, b"", Bounds()) == b""
    assert int(await limited(pid, b"", Bounds())) != os.getpid()


async def test_megabytes_go_both_ways() -> None:
    given = b"x" * 5_000_000
    assert await limited(upper, given, Bounds(result_bytes=len(given))) == given.upper()


async def test_an_exception_comes_back_as_text_fit_for_a_terminal() -> None:
    with pytest.raises(FunctionFailed) as failed:
        await limited(bad, b"luck" * 1000, Bounds())
    assert str(failed.value).startswith("LookupError: no  [31mluckluck")
    assert len(str(failed.value)) < 600


@pytest.mark.parametrize(
    ("function", "given", "bounds", "message"),
    [
        (endless, b"/dev/null", Bounds(seconds=0.3), r"more than 0\.3 s$"),
        (busy, b"", Bounds(seconds=30, cpu_seconds=1), "more than 1 s of CPU time"),
        (greedy, b"300000000", Bounds(memory_bytes=100 * 2**20), "more than 100 MiB of memory"),
        (large, b"1001", Bounds(result_bytes=1000), "result has more than 1000 bytes"),
    ],
)
async def test_more_than_a_limit_is_an_error_that_names_it(function, given, bounds, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(LimitExceeded, match=message):
        await limited(function, given, bounds)


async def test_what_is_within_the_limits_passes() -> None:
    assert await limited(greedy, b"50000000", Bounds(memory_bytes=100 * 2**20)) == b""
    assert len(await limited(large, b"1000", Bounds(result_bytes=1000))) == 1000


async def test_a_crash_costs_that_call_only() -> None:
    with pytest.raises(FunctionCrashed, match=f"killed by signal {signal.SIGSEGV.value}"):
        await limited(crash, b"", Bounds())
    with pytest.raises(FunctionCrashed, match="ended with code 3"):
        await limited(leave, b"x" * 5_000_000, Bounds())
    assert await limited(upper, b"abc", Bounds()) == b"ABC"


async def test_a_function_that_no_other_process_can_find_is_refused() -> None:
    with pytest.raises(ValueError, match="make it a function of a module"):
        await limited(lambda given: given, b"", Bounds())


async def test_a_module_that_is_not_there_is_the_machines_failure() -> None:
    with pytest.raises(LimitedLost, match="ModuleNotFoundError: No module named 'no_such_module'"):
        await limited(upper, b"", Bounds(), preload=["no_such_module"])
    assert await limited(upper, b"abc", Bounds()) == b"ABC"


async def test_what_is_preloaded_is_there_and_not_here() -> None:
    assert "pdb" in json.loads(await limited(modules, b"", Bounds(), preload=["xml.dom.pulldom", "pdb"]))
    assert "xml.dom.pulldom" in json.loads(await limited(modules, b"", Bounds()))
    assert "xml.dom.pulldom" not in sys.modules


async def test_no_environment_variable_is_there_to_be_read() -> None:
    os.environ["SOME_API_KEY"] = "sk-secret"
    try:
        own, begun = json.loads(await limited(environment, b"", Bounds()))
    finally:
        del os.environ["SOME_API_KEY"]
    assert own == {}
    assert set(filter(None, begun.split("\0"))) == {"OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1"}


async def test_a_function_has_no_file_of_the_server_and_what_it_prints_is_dropped() -> None:
    calls = await asyncio.gather(*(limited(files, b"", Bounds()) for _ in range(8)))
    for each in map(json.loads, calls):
        others = [what for number, what in each.items() if int(number) > 2]
        assert [each[number] for number in "012"] == ["/dev/null"] * 3
        assert len(others) == 1, each
        assert others[0].startswith("socket:")


async def test_time_without_a_core_is_not_counted() -> None:
    # It needs 0.6 s, and has a quarter of a core: by the wall clock it would be late.
    assert await limited(crowded, b"0.6", Bounds(seconds=2.0)) == b"done"


async def test_calls_that_share_a_budget_end_with_it() -> None:
    budget = Budget(1.0)
    assert await limited(spin, b"0.3", Bounds(), budget=budget) == b"done"
    assert 0.25 < budget.used < 0.9
    with pytest.raises(BudgetSpent, match="the 1 s of CPU time for all of them were used up"):
        await limited(busy, b"", Bounds(), budget=budget)
    assert budget.left == 0
    with pytest.raises(BudgetSpent):
        await limited(upper, b"", Bounds(), budget=budget)


async def test_a_budget_that_ended_a_call_is_spent_though_the_kernel_counts_a_little_less() -> None:
    budget = Budget(1.0)  # a whole second: the kernel ends by its ticks, and reports what really ran
    with pytest.raises(BudgetSpent):
        await limited(busy, b"", Bounds(), budget=budget)
    assert budget.left == 0


async def test_a_call_that_takes_more_than_its_own_is_told_so_whatever_the_budget() -> None:
    with pytest.raises(LimitExceeded, match="more than 1 s of CPU time"):
        await limited(busy, b"", Bounds(cpu_seconds=1), budget=Budget(60))


async def test_hundreds_at_a_time_wait_their_turn_and_the_loop_does_not() -> None:
    await limited(upper, b"", Bounds())
    ticks, calls = 0, asyncio.gather(*(limited(upper, f"n{n}".encode(), Bounds()) for n in range(300)))
    while not calls.done():
        await asyncio.sleep(0)
        ticks += 1
    assert await calls == [f"N{n}".encode() for n in range(300)]
    assert ticks > 300


async def test_no_more_run_at_once_than_there_are_cores_and_waiting_is_not_counted() -> None:
    cores = len(os.sched_getaffinity(0))
    # Each takes 0.2 s, and all together longer than any one may.
    calls = (limited(timed, b"", Bounds(seconds=2)) for _ in range(12 * cores))
    spans = [json.loads(each) for each in await asyncio.gather(*calls)]
    for began, _ in spans:
        assert sum(1 for start, end in spans if start <= began < end) <= cores


async def test_a_cancelled_call_ends_its_process(tmp_path: Path) -> None:
    call = asyncio.create_task(limited(endless, str(tmp_path / "pid").encode(), Bounds(seconds=600)))
    process = await _process(tmp_path / "pid")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.to_thread(wait_until, lambda: not process.is_running(), "its process ends")
    assert await limited(upper, b"abc", Bounds()) == b"ABC"


async def test_calls_that_are_cancelled_while_they_wait_never_run(tmp_path: Path) -> None:
    calls = [
        asyncio.create_task(limited(endless, str(tmp_path / str(n)).encode(), Bounds(seconds=600))) for n in range(40)
    ]
    await _process(tmp_path / "0")
    for call in reversed(calls):  # those that run are let go last
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert await limited(upper, b"abc", Bounds()) == b"ABC"
    assert len(list(tmp_path.iterdir())) <= len(os.sched_getaffinity(0))


async def test_what_a_function_started_ends_with_it() -> None:
    started = int(await limited(parents, b"", Bounds()))
    await asyncio.to_thread(wait_until, lambda: not _alive(started), "the process that it started ends")


@pytest.mark.parametrize("function", [server_killed_once, killed_once])
async def test_what_was_killed_is_run_again(function, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert await limited(function, str(tmp_path / "note").encode(), Bounds()) == b"again"


@pytest.mark.parametrize(("function", "why"), [(server_killed, "limits died"), (killed, "killed by signal 9")])
async def test_what_is_killed_again_is_the_machines_failure(function, why: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(LimitedLost, match=f"tried 2 times, last: .*{why}") as lost:
        await limited(function, b"", Bounds())
    assert lost.value.failure is FailureClass.SETUP
    assert await limited(upper, b"abc", Bounds()) == b"ABC"


async def test_a_server_that_hangs_is_replaced_and_costs_no_call(tmp_path: Path) -> None:
    """Neither the one that it ran, nor one of which it reads nothing."""
    await limited(upper, b"", Bounds())
    note, given = tmp_path / "note", b"x" * 5_000_000
    stopping = asyncio.create_task(limited(server_stopped_once, str(note).encode(), Bounds(), patience=8))
    await asyncio.to_thread(wait_until, note.exists, "the server stops")
    assert await limited(upper, given, Bounds(result_bytes=len(given)), patience=8) == given.upper()
    assert await stopping == b"again"


async def test_what_a_killed_server_ran_ends(tmp_path: Path) -> None:
    call = asyncio.create_task(limited(endless, str(tmp_path / "pid").encode(), Bounds(seconds=600)))
    process = await _process(tmp_path / "pid")
    server = process.parent()
    assert server is not None
    server.kill()
    await asyncio.to_thread(wait_until, lambda: not process.is_running(), "what it ran ends")
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, None])
def test_nothing_outlives_the_calling_process(tmp_path: Path, end: signal.Signals | None) -> None:
    """Killed, ended, or (None) come to its own end while a fork of it lives on and holds all of its files."""
    code = f"""
import asyncio, os, sys, time
from deskroll.envs.limited import Bounds, limited
from tests.envs.limited.test_limited import endless
async def main():
    call = asyncio.create_task(limited(endless, b"{tmp_path}/pid", Bounds(seconds=600), confined=False))
    while not os.path.exists("{tmp_path}/pid"):
        await asyncio.sleep(0.01)
    if os.fork() == 0:
        open("{tmp_path}/forked", "w").close()
        time.sleep(600)
    while not os.path.exists("{tmp_path}/go"):
        await asyncio.sleep(0.01)
asyncio.run(main())
"""
    caller = psutil.Popen([sys.executable, "-c", code], cwd=ROOT, start_new_session=True)
    try:
        function = wait_until(lambda: _found(tmp_path / "pid"), "the function runs")
        assert function is not None
        wait_until((tmp_path / "forked").exists, "the caller forks")
        server = function.parent()
        assert server is not None
        if end:
            os.kill(caller.pid, end)
        else:
            (tmp_path / "go").touch()
        caller.wait(30)
        wait_until(lambda: not function.is_running() and not server.is_running(), "both end")
    finally:
        os.killpg(caller.pid, signal.SIGKILL)


def test_a_fork_that_loses_its_server_before_it_is_bound_to_it_never_runs(tmp_path: Path) -> None:
    (tmp_path / "orphaning.py").write_text(f"""
import os, pathlib, signal, time
server = os.getpid()
def lose_the_server_once():
    try:
        note = open("{tmp_path}/orphan", "x")
    except FileExistsError:
        return
    os.setpgid(0, 0)  # as its server does for it
    os.kill(server, signal.SIGKILL)
    while os.getppid() == server:
        time.sleep(0.001)
    with note:
        note.write(str(os.getpid()))
os.register_at_fork(after_in_child=lose_the_server_once)
""")
    code = f"""
import asyncio
from deskroll.envs.limited import Bounds, limited
from tests.envs.limited.test_limited import sign
asyncio.run(limited(sign, b"{tmp_path}/ran", Bounds(), preload=["orphaning"], confined=False))
"""
    path = {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ | path, check=True, timeout=60)
    orphan = wait_until((tmp_path / "orphan").read_text, "the fork has lost its server")
    wait_until(lambda: not _alive(int(orphan)), "the fork ends")
    signed = (tmp_path / "ran").read_text().split()
    assert len(signed) == 1, "one runs: that of the second attempt"
    assert orphan not in signed


def test_a_fork_of_a_caller_has_a_server_of_its_own() -> None:
    code = """
import asyncio, os
from deskroll.envs.limited import Bounds, limited
from tests.envs.limited.test_limited import server_pid
ask = lambda: int(asyncio.run(limited(server_pid, b"", Bounds(), confined=False)))
first = ask()
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, f"{ask()} {ask()}".encode())
    os._exit(0)
os.wait()
theirs = os.read(reader, 100).split()
assert theirs[0] == theirs[1] and int(theirs[0]) != first, (first, theirs)
assert ask() == first
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, check=True, timeout=60)


def server_pid(given: bytes) -> bytes:
    return str(os.getppid()).encode()


def _found(file: Path) -> psutil.Process | None:
    text = file.read_text() if file.exists() else ""
    return psutil.Process(int(text)) if text else None


async def _process(file: Path) -> psutil.Process:
    process = await asyncio.to_thread(wait_until, lambda: _found(file), "the function runs")
    assert process is not None
    return process


def _alive(number: int) -> bool:
    try:
        return psutil.Process(number).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
