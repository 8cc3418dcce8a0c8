"""The interpreter as an episode uses it: what is shown, what stays, what happens when code ends it or time is over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
from collections.abc import AsyncIterator

import psutil
import pytest
import uvloop

from deskroll.envs.interpreter import Interpreter, Limits
from deskroll.errors import SetupError
from deskroll.host.control_group import can_make_groups
from tests.waiting import eventually, wait_until

LOST = "started anew: names, imports and files are lost"
SHOWN = {
    "a value": ("6*7", "42"),
    "a text, as the console shows it": ("'it''s'", "'its'"),
    "no value": ("x = 1", "(no output)"),
    "None": ("None", "(no output)"),
    "nothing": ("", "(no output)"),
    "a comment": ("# nothing", "(no output)"),
    "the last expression alone": ("1\n2\n3", "3"),
    "a print and a value": ("print('a')\n'b'", "a\n'b'"),
    "a statement last": ("1\nx = 2", "(no output)"),
    "both streams, in order": (
        "import sys\nprint('a')\nprint('b', file=sys.stderr)\nprint('c')\nprint('d', file=sys.stderr)", "a\nb\nc\nd",
    ),
    "unicode": ("print('grüße, 世界 🐍')\n'ä'", "grüße, 世界 🐍\n'ä'"),
    "names in unicode": ("größe = 2\ngröße * 2", "4"),
    "numpy": ("import numpy as np\nnp.arange(6).reshape(2, 3).sum(axis=0)", "array([3, 5, 7])"),
    "linear algebra": ("import numpy as np\nround(float(np.linalg.det([[1, 2], [3, 4]])), 6)", "-2.0"),
    "the standard library": (
        "import collections, decimal, fractions, itertools, json, math, re, sqlite3, statistics\n"
        "fractions.Fraction(1, 3) + fractions.Fraction(1, 6)",
        "Fraction(1, 2)",
    ),
    "a loop": ("for n in range(3):\n    print(n)", "0\n1\n2"),
    "a class": (
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n"
        "import pickle\npickle.loads(pickle.dumps(P(3)))",
        "P(x=3)",
    ),
    "annotations of its own": ("def f(x: Undefined1) -> int: ...\n", "NameError: name 'Undefined1' is not defined"),
    "a file": ("open('f.txt', 'w').write('x')\nopen('/tmp/f.txt').read()", "'x'"),
    "a module of its own": ("open('own.py', 'w').write('A = 5')\nimport own\nown.A", "5"),
    "a program": ("import subprocess\nsubprocess.run(['echo', 'hi'], check=True).returncode", "hi\n0"),
    "Python as a program": (
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import numpy; print(numpy.arange(3))'])\nNone",
        "[0 1 2]",
    ),
    "processes": (
        "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as pool:\n"
        "    print(pool.map(abs, [-1, -2]))",
        "[1, 2]",
    ),
    "shared memory": (
        "from multiprocessing import shared_memory as s\nm = s.SharedMemory(create=True, size=9)\n"
        "m.close(); m.unlink()\n1",
        "1",
    ),
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor as T\nwith T(4) as t:\n"
        "    print(sum(t.map(abs, range(-5, 0))))",
        "15",
    ),
    "asyncio": ("import asyncio\nasyncio.run(asyncio.sleep(0, 'slept'))", "'slept'"),
    "loopback of its own": (
        "import socket\ns = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_connection(s.getsockname()).close()\n1",
        "1",
    ),
    "no input": ("input()", "EOFError: EOF when reading a line"),
    "syntax": ("a = = 1", 'File "<snippet 1>", line 1\n    a = = 1\n        ^\nSyntaxError: invalid syntax'),
    "an exception": (
        "def f(x):\n    return 1 / x\n\nf(0)",
        'Traceback (most recent call last):\n  File "<snippet 1>", line 4, in <module>\n    f(0)\n'
        '  File "<snippet 1>", line 2, in f\n    return 1 / x\n           ~~^~~\nZeroDivisionError: division by zero',
    ),
    "an exception with a cause": (
        "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('b') from e", "ValueError: b",
    ),
    "an exception after output": ("print('before')\nraise RuntimeError('x')", "RuntimeError: x"),
}  # fmt: skip


@pytest.fixture
async def interpreter() -> AsyncIterator[Interpreter]:
    """One with the usual limits."""
    made = Interpreter(Limits())
    yield made
    await made.close()


@pytest.mark.parametrize("name", SHOWN)
async def test_what_is_shown(name: str, interpreter: Interpreter) -> None:
    code, expected = SHOWN[name]
    result = await interpreter.run([code])
    assert result.strip() == expected if "Error" not in expected else result.endswith(expected), result
    assert "inside.py" not in result


async def test_names_imports_and_files_stay(interpreter: Interpreter) -> None:
    await interpreter.run(["import math\nx = 2\ndef f(y):\n    return x * y", "open('kept', 'w').write('here')"])
    assert await interpreter.run(["f(math.floor(3.5))"]) == "6"
    assert await interpreter.run(["_ + 1"]) == "7"
    assert await interpreter.run(["1/0"])
    assert await interpreter.run(["x, open('kept').read()"]) == "(2, 'here')"


async def test_several_snippets_have_a_result_each(interpreter: Interpreter) -> None:
    result = await interpreter.run(["x = 5", "x", "1/0", "print(x + 1)"])
    parts = re.split(r"^--- (\d) of 4 ---\n", result, flags=re.MULTILINE)
    assert parts[1::2] == ["1", "2", "3", "4"]
    assert [part.strip().splitlines()[-1] for part in parts[2::2]] == [
        "(no output)", "5", "ZeroDivisionError: division by zero", "6",
    ]  # fmt: skip


async def test_what_was_printed_before_a_crash_is_shown_and_the_rest_is_not_run(interpreter: Interpreter) -> None:
    result = await interpreter.run(["x = 1\nprint('so far')", "import os\nprint('and', flush=True)\nos._exit(9)", "x"])
    assert result == (
        "--- 1 of 3 ---\nso far\n--- 2 of 3 ---\nand\n"
        f"[the code ended the interpreter (exit status 9); the interpreter was {LOST}]\n--- 3 of 3 ---\n[not run]"
    )
    assert "NameError" in await interpreter.run(["x"])
    assert await interpreter.run(["x = 2", "x"]) == "--- 1 of 2 ---\n(no output)\n--- 2 of 2 ---\n2"


async def test_an_interrupted_call_keeps_its_names() -> None:
    interpreter = Interpreter(Limits(timeout=3.0))
    try:
        result = await interpreter.run(["x = 3", "while True:\n    x += 0", "x = 0"])
        first, second, third = re.split(r"--- \d of 3 ---\n", result)[1:]
        assert first == "(no output)\n"
        assert "KeyboardInterrupt\n[stopped: the call's limit of 3 s was reached; names and files are kept]" in second
        assert third == "[not run]"
        assert await interpreter.run(["x"]) == "3"
    finally:
        await interpreter.close()


async def test_an_interrupt_of_its_own_is_an_exception_and_one_that_is_caught_is_no_success() -> None:
    interpreter = Interpreter(Limits(timeout=3.0))
    try:
        assert (await interpreter.run(["raise KeyboardInterrupt"])).endswith("\nKeyboardInterrupt")
        code = "import time\ntry:\n    time.sleep(99)\nexcept BaseException:\n    print('caught')"
        assert (await interpreter.run([code])).startswith("caught\n[stopped: the call's limit of 3 s")
        assert await interpreter.run(["6*7"]) == "42"
    finally:
        await interpreter.close()


async def test_the_limit_is_one_for_the_whole_call() -> None:
    interpreter = Interpreter(Limits(timeout=1.5))
    try:
        result = await interpreter.run(["import time", *["time.sleep(0.6)"] * 5])
        assert result.count("stopped: the call's limit of 1.5 s") == 1
        assert result.endswith("[not run]")
    finally:
        await interpreter.close()


async def test_it_starts_with_the_first_call_and_leaves_nothing() -> None:
    def children() -> set[int]:
        return {process.pid for process in psutil.Process().children(recursive=True)}

    before, files = children(), len(os.listdir("/proc/self/fd"))
    interpreter = Interpreter(Limits())
    assert children() <= before
    await interpreter.close()
    await interpreter.run(["1"])
    assert children() - before
    await interpreter.close()
    assert children() <= before
    await interpreter.close()
    assert len(os.listdir("/proc/self/fd")) <= files


async def test_no_more_compute_at_once_than_there_are_cores_and_waiting_is_free() -> None:
    cores = len(os.sched_getaffinity(0))
    every = [Interpreter(Limits(timeout=4.0)) for _ in range(4 * cores)]
    code = "import time\nbegan = time.monotonic()\ntime.sleep(1.5)\nprint(began, time.monotonic())"
    try:
        results = await asyncio.gather(*(each.run([code]) for each in every))
    finally:
        await asyncio.gather(*(each.close() for each in every))
    spans = [tuple(map(float, result.split())) for result in results]  # all of them: none was stopped
    for began, _ in spans:
        assert sum(start <= began < end for start, end in spans) <= cores


async def test_a_cancelled_call_is_over_and_the_next_one_is_new(interpreter: Interpreter) -> None:
    await interpreter.run(["x = 1"])
    task = asyncio.create_task(interpreter.run(["open('began', 'w')\nwhile True:\n    pass"]))

    def used() -> float:
        seconds = 0.0
        for each in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                seconds += each.cpu_times().user
        return seconds

    before = used()

    async def computes() -> bool:
        return used() > before + 0.5

    await eventually(computes, "the code runs")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "NameError" in await interpreter.run(["x"])


@pytest.mark.parametrize("loops", [1, 3, 10, 100])
async def test_cancelled_at_any_moment_nothing_is_left(loops: int) -> None:
    files = len(os.listdir("/proc/self/fd"))
    interpreter = Interpreter(Limits())
    task = asyncio.create_task(interpreter.run(["1"]))
    for _ in range(loops):
        await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.wait([task])
    await interpreter.close()
    assert len(os.listdir("/proc/self/fd")) <= files
    assert not [each for each in psutil.Process().children(recursive=True) if _is_inside(each)]


@pytest.mark.parametrize("inner", [False, True])
async def test_in_a_storm_of_kills_each_call_answers_or_is_the_machines_failure(inner: bool) -> None:
    """Whoever is killed, the outer process or the first one inside; what the code did is never said to be the cause."""
    chance, seen = random.Random(3), set()
    interpreter = Interpreter(Limits())
    for _ in range(12):
        task = asyncio.create_task(interpreter.run(["6*7"]))
        await asyncio.sleep(chance.uniform(0, 0.15))  # the moment is what is varied
        for outer in filter(_is_inside, psutil.Process().children()):
            with contextlib.suppress(psutil.Error, IndexError):
                seen |= {outer, *outer.children(recursive=True)}
                (outer.children()[0] if inner else outer).kill()
        try:
            text = await task
        except SetupError:
            continue
        assert "the code ended the interpreter" not in text
        assert inner or text.endswith("42")
    await interpreter.close()
    await asyncio.to_thread(wait_until, lambda: not any(each.is_running() for each in seen), "all of them have ended")


def _is_inside(process: psutil.Process) -> bool:
    try:
        return "inside.py" in " ".join(process.cmdline())
    except psutil.Error:
        return False


async def test_it_works_in_another_loop() -> None:
    async def compute() -> list[str]:
        interpreter = Interpreter(Limits(timeout=3.0))
        try:
            return [
                await interpreter.run([code]) for code in ("6*7", "while True: pass", "import os; os._exit(1)", "1+1")
            ]
        finally:
            await interpreter.close()

    def run() -> list[str]:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(compute())

    first, second, third, fourth = await asyncio.to_thread(run)
    assert (first, fourth) == ("42", "2")
    assert "names and files are kept" in second
    assert LOST in third


@pytest.mark.skipif(not can_make_groups(), reason="without control groups, memory is limited by process")
async def test_memory_is_limited_over_all_processes() -> None:
    interpreter = Interpreter(Limits(memory_mb=256))
    one = "import mmap\nm = mmap.mmap(-1, 500 << 20)\nfor at in range(0, 500 << 20, 4096):\n    m[at] = 1"
    several = (
        "import os, time\nfor n in range(4):\n    if os.fork() == 0:\n"
        "        x = b'1' * (100 << 20)\n        time.sleep(99)\nos.waitpid(-1, 0)[1]"
    )
    try:
        assert "ran out of memory (limit: 256 MB)" in await interpreter.run([one])
        assert await interpreter.run([several]) == "9"
    finally:
        await interpreter.close()
