"""Every attack is refused or contained; afterwards the same episode computes, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from deskroll.envs.interpreter import Interpreter, Limits
from tests.envs.interpreter.attacks import ATTACKS, Attack
from tests.waiting import eventually

SECRET = f"sk-test-{secrets.token_hex(8)}"
SMALL = Limits(memory_mb=256, processes=32, disk_mb=32, output_chars=2000)


@dataclass
class Host:
    """What there is on the host to be found."""

    folder: Path
    port: int
    abstract: str
    visits: list[str]

    @property
    def canary(self) -> Path:
        return self.folder / "canary"

    def fill(self, code: str) -> str:
        words = {
            "PORT": self.port, "SOCKET": self.folder / "s", "ABSTRACT": self.abstract, "CANARY": self.canary,
            "PID": os.getpid(),
        }  # fmt: skip
        return re.sub("@([A-Z]+)@", lambda match: str(words[match[1]]), code)


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
async def host(key: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Host]:
    """A file, and services on every kind of socket that could be reached."""
    host = Host(tmp_path_factory.mktemp("host"), 0, f"deskroll-{secrets.token_hex(4)}", [])
    host.canary.write_text(SECRET)

    async def visited(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host.visits.append("somebody came")
        writer.close()

    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0{host.abstract}")
    tcp = await asyncio.start_server(visited, "127.0.0.1", 0)
    host.port = tcp.sockets[0].getsockname()[1]
    servers = [tcp, await asyncio.start_unix_server(visited, host.folder / "s")]
    servers.append(await asyncio.start_unix_server(visited, sock=abstract))
    yield host
    for server in servers:
        server.close()
        await server.wait_closed()


def namespaces() -> set[str]:
    """The process namespaces, other than our own, of our descendants."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/{process.pid}/ns/pid"))
    return found - {os.readlink("/proc/self/ns/pid")}


def inhabitants(spaces: set[str]) -> list[int]:
    """Every process on the machine that lives in one of these namespaces."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(folder / "ns" / "pid") in spaces:
                found.append(int(folder.name))
    return found


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_it_is_contained(attack: Attack, host: Host) -> None:
    limits = Limits(timeout=attack.timeout, memory_mb=256, processes=32, disk_mb=32, output_chars=2000)
    interpreter = Interpreter(limits)
    before, others = len(os.listdir("/proc/self/fd")), namespaces()
    try:
        assert await interpreter.run(["6*7"]) == "42"
        spaces = namespaces() - others
        result = await interpreter.run([host.fill(attack.code)])
        assert re.search(attack.says, result, re.MULTILINE), result
        assert "DONE" not in result
        assert SECRET not in result
        assert len(result) < limits.output_chars + 500
        assert (await interpreter.run(["6*7"])).splitlines()[-1] == "42"
        spaces |= namespaces() - others
    finally:
        await interpreter.close()
    assert spaces
    assert inhabitants(spaces) == []
    assert len(os.listdir("/proc/self/fd")) <= before
    assert host.visits == []
    assert host.canary.read_text() == SECRET
    assert sorted(path.name for path in host.folder.iterdir()) == ["canary", "s"]


async def test_attacks_differ() -> None:
    assert len({attack.name for attack in ATTACKS}) == len({attack.code for attack in ATTACKS}) == len(ATTACKS) >= 30


async def test_a_thread_may_end_it_between_calls() -> None:
    others, interpreter = namespaces(), Interpreter(SMALL)
    try:
        code = "import os, threading\nthreading.Timer(5, os._exit, [1]).start()"
        assert await interpreter.run([code]) == "(no output)"
        spaces = namespaces() - others

        async def gone() -> bool:
            return not inhabitants(spaces)

        await eventually(gone, "the interpreter ends")
        result = await interpreter.run(["6*7"])
        assert result.startswith("[since the last call, something that it left running has ended")
        assert result.endswith("\n42")
    finally:
        await interpreter.close()


async def test_a_process_left_running_ends_with_its_call() -> None:
    others, interpreter = namespaces(), Interpreter(SMALL)
    try:
        await interpreter.run(["import subprocess\np = subprocess.Popen(['sleep', '9999'])"])
        assert len(inhabitants(namespaces() - others)) == 1
        assert await interpreter.run(["p.wait() is not None"]) == "True"
    finally:
        await interpreter.close()


async def test_an_interpreter_dies_with_its_worker(tmp_path: Path) -> None:
    """Killed with -9, a worker leaves no process behind, whatever the code tried."""
    code = (
        "import asyncio, sys\nfrom deskroll.envs.interpreter import Interpreter, Limits\n"
        "async def main():\n    i = Interpreter(Limits(timeout=600))\n"
        "    await i.run(['import signal, os'])\n    print('up', flush=True)\n"
        "    await i.run(['[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 3, 15)]\\n"
        "for n in range(3): os.fork()\\nos.setsid\\nwhile True: pass'])\nasyncio.run(main())\n"
    )
    others = namespaces()
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert worker.stdout is not None
    try:
        assert await worker.stdout.readline() == b"up\n"

        async def forked() -> set[str]:
            spaces = namespaces() - others
            return spaces if len(inhabitants(spaces)) == 8 else set()

        spaces = await eventually(forked, "the code forks")
    finally:
        worker.kill()
        await worker.wait()

    async def gone() -> bool:
        return not inhabitants(spaces)

    await eventually(gone, "everything inside ends")
