"""Every attack is refused or contained; afterwards the same episode computes, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest

from deskroll.envs.interpreter import Interpreter, Limits
from tests.envs.interpreter.attacks import ATTACKS, Attack
from tests.prey import SECRET, Prey, put_out
from tests.waiting import eventually

SMALL = Limits(memory_mb=256, processes=32, disk_mb=32, output_chars=2000)


@pytest.fixture(scope="module")
def key() -> Iterator[None]:
    """A key in the worker's environment."""
    before = os.environ.get("OPENAI_API_KEY")
    os.environ["OPENAI_API_KEY"] = SECRET
    yield
    if before is None:
        del os.environ["OPENAI_API_KEY"]
    else:
        os.environ["OPENAI_API_KEY"] = before


@pytest.fixture(scope="module")
async def prey(key: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Prey]:
    async with put_out(tmp_path_factory.mktemp("host")) as prey:
        yield prey


class Spaces:
    """The process namespaces of our descendants that were made after this was.

    Each is held open: the kernel gives the number of one that is gone to the next that anybody makes, and another
    test's sandbox would be taken for what is left of ours.
    """

    def __init__(self) -> None:
        self._held: dict[str, int] = {}
        self._hold("/proc/self/ns/pid")
        self.look()
        self._before = set(self._held)

    def _hold(self, path: str) -> None:
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDONLY)
            if self._held.setdefault(os.readlink(f"/proc/self/fd/{file}"), file) != file:
                os.close(file)

    def look(self) -> None:
        """Take those in that there are now."""
        for process in psutil.Process().children(recursive=True):
            self._hold(f"/proc/{process.pid}/ns/pid")

    @property
    def seen(self) -> set[str]:
        return self._held.keys() - self._before

    def inhabitants(self) -> list[int]:
        """Every process on the machine that lives in one of them."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(folder / "ns" / "pid") in self.seen:
                    found.append(int(folder.name))
        return found

    async def deserted(self) -> bool:
        return not self.inhabitants()

    def close(self) -> None:
        for file in self._held.values():
            os.close(file)
        self._held.clear()


@pytest.fixture
def spaces() -> Iterator[Spaces]:
    with contextlib.closing(Spaces()) as spaces:
        yield spaces


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_it_is_contained(attack: Attack, prey: Prey, spaces: Spaces) -> None:
    limits = Limits(timeout=attack.timeout, memory_mb=256, processes=32, disk_mb=32, output_chars=2000)
    interpreter = Interpreter(limits)
    before = len(os.listdir("/proc/self/fd"))
    try:
        assert await interpreter.run(["6*7"]) == "42"
        spaces.look()
        result = await interpreter.run([prey.fill(attack.code)])
        assert re.search(attack.says, result, re.MULTILINE), result
        assert "DONE" not in result
        assert SECRET not in result
        assert len(result) < limits.output_chars + 500
        assert (await interpreter.run(["6*7"])).splitlines()[-1] == "42"
        spaces.look()
    finally:
        await interpreter.close()
    assert spaces.seen
    assert spaces.inhabitants() == []
    assert len(os.listdir("/proc/self/fd")) <= before + len(spaces.seen)
    prey.require_untouched()


async def test_attacks_differ() -> None:
    assert len({attack.name for attack in ATTACKS}) == len({attack.code for attack in ATTACKS}) == len(ATTACKS) >= 80


async def test_a_thread_may_end_it_between_calls(spaces: Spaces) -> None:
    interpreter = Interpreter(SMALL)
    try:
        code = "import os, threading\nthreading.Timer(5, os._exit, [1]).start()"
        assert await interpreter.run([code]) == "(no output)"
        spaces.look()
        assert spaces.seen
        await eventually(spaces.deserted, "the interpreter ends")
        result = await interpreter.run(["6*7"])
        assert result.startswith("[since the last call, something that it left running has ended")
        assert result.endswith("\n42")
    finally:
        await interpreter.close()


async def test_a_process_left_running_ends_with_its_call(spaces: Spaces) -> None:
    interpreter = Interpreter(SMALL)
    try:
        await interpreter.run(["import subprocess\np = subprocess.Popen(['sleep', '9999'])"])
        spaces.look()
        assert len(spaces.inhabitants()) == 1
        assert await interpreter.run(["p.wait() is not None"]) == "True"
    finally:
        await interpreter.close()


async def test_an_interpreter_dies_with_its_worker(spaces: Spaces) -> None:
    """Killed with -9, a worker leaves no process behind, whatever the code tried."""
    code = (
        "import asyncio, sys\nfrom deskroll.envs.interpreter import Interpreter, Limits\n"
        "async def main():\n    i = Interpreter(Limits(timeout=600))\n"
        "    await i.run(['import signal, os'])\n    print('up', flush=True)\n"
        "    await i.run(['[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 3, 15)]\\n"
        "for n in range(3): os.fork()\\nos.setsid\\nwhile True: pass'])\nasyncio.run(main())\n"
    )
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert worker.stdout is not None
    try:
        assert await worker.stdout.readline() == b"up\n"

        async def forked() -> bool:
            spaces.look()
            return len(spaces.inhabitants()) == 8

        await eventually(forked, "the code forks")
    finally:
        worker.kill()
        await worker.wait()

    await eventually(spaces.deserted, "everything inside ends")
