"""Model servers as processes: ready means ready, and what ends leaves nothing, whoever was killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deskroll.errors import ModelError
from deskroll.host.owner import process_start
from deskroll.models.vllm.command import ServerCommand
from deskroll.models.vllm.family import family
from deskroll.models.vllm.notes import ServerNotes
from deskroll.models.vllm.reap import reap_servers
from deskroll.models.vllm.server import ServerDied, VLLMServer
from tests.models.vllm.standing import stand_in
from tests.models.weights.files import one_file
from tests.waiting import eventually, wait_until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return one_file(tmp_path / "step_1", fill=0.25)


async def test_a_server_that_is_ready_has_answered_with_ids_and_logprobs(folder: Path) -> None:
    server = stand_in(folder)
    proof = await server.start()
    try:
        assert (proof.token_ids, proof.logprobs) == ((5, 6, 7), (-0.625, -1.25, -1.25, -1.25))
        assert server.ready_s is not None
        assert os.getsid(server.pid) == server.pid, "a session of its own"
        assert len(family(server.id)) == 2
        assert [note.id for note in ServerNotes().list()] == [server.id]
        assert server.socket.parent.stat().st_mode & 0o777 == 0o700
        assert not server.died.done()
    finally:
        await server.stop()
    assert family(server.id) == set()
    assert not server.socket.parent.exists()
    assert "EngineCore is up" in server.log.read_text()
    assert ServerNotes().list() == []
    await server.stop()
    with pytest.raises(ModelError, match="started before"):
        await server.start()


async def test_a_killed_api_process_is_noticed_and_its_engine_ends_too(folder: Path) -> None:
    async with stand_in(folder) as server:
        os.kill(server.pid, signal.SIGKILL)
        died = await server.died
        assert "was ended by signal 9" in str(died)
        (engine,) = family(server.id)
        assert process_start(engine), "upstream's survives, so this one does"
    assert family(server.id) == set()
    assert process_start(engine) == 0


async def test_an_error_has_the_first_cause_and_the_path_of_the_log(folder: Path) -> None:
    server = stand_in(folder, "dies")
    with pytest.raises(ServerDied) as caught:
        await server.start()
    why = "ended with code 3: ValueError: 7 of 12 GiB are free; its log: "
    assert str(caught.value) == f"model server {server.id} (policy) {why}{server.log}"
    assert not caught.value.hopeless
    assert "RuntimeError: out of memory" in server.log.read_text()
    assert family(server.id) == set()
    assert ServerNotes().list() == []


async def test_an_error_that_another_start_cannot_mend_says_what_to_do(folder: Path) -> None:
    with pytest.raises(ServerDied, match=r"InvalidCxxCompiler: .* to do: install a C\+\+ compiler") as caught:
        await stand_in(folder, "no compiler").start()
    assert caught.value.hopeless


@pytest.mark.parametrize("fault", ["silent", "unhealthy"])
async def test_a_server_that_does_not_become_ready_is_ended(folder: Path, fault: str) -> None:
    server = stand_in(folder, fault, start_timeout=1.5)
    with pytest.raises(ServerDied, match=r"was not ready within 1\.5 s \(start_timeout\)"):
        await server.start()
    assert family(server.id) == set()


async def test_a_server_whose_answers_have_no_ids_is_of_no_use(folder: Path) -> None:
    server = stand_in(folder, "no ids")
    with pytest.raises(ServerDied, match="has 0 token ids and 3 log-probabilities"):
        await server.start()
    assert family(server.id) == set()


async def test_a_server_that_dies_of_its_first_request_says_so(folder: Path) -> None:
    with pytest.raises(ServerDied, match=r"was ended by signal 9|of no use"):
        await stand_in(folder, "die /v1/chat/completions").start()


async def test_a_program_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    program = tmp_path / "vllm"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    command = ServerCommand(words=(str(program),), env={})
    server = VLLMServer(ServerNotes(), lambda place: command, model="policy", start_timeout=60)
    with pytest.raises(ServerDied, match="cannot be started: No such file"):
        await server.start()
    assert ServerNotes().list() == []


async def test_a_start_that_is_cancelled_leaves_nothing(folder: Path) -> None:
    server = stand_in(folder, "silent")
    starting = asyncio.create_task(server.start())
    notes = ServerNotes()

    async def is_up() -> bool:
        return any(len(family(note.id)) == 2 for note in notes.list())

    await eventually(is_up, "both of its processes are there")
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    assert starting.cancelled()
    assert family(server.id) == set()
    assert notes.list() == []


async def test_who_cancels_a_stop_makes_it_short(folder: Path) -> None:
    server = stand_in(folder, "deaf")
    await server.start()
    stopping = asyncio.create_task(server.stop(grace=3600))
    await asyncio.wait([stopping], timeout=0)
    stopping.cancel()
    await asyncio.gather(stopping, return_exceptions=True)
    assert family(server.id) == set()
    assert ServerNotes().list() == []


OWNER = """
import asyncio, sys
from pathlib import Path
from tests.models.vllm.standing import stand_in
async def main():
    server = stand_in(Path(sys.argv[1]))
    await server.start()
    print(server.id, server.pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


async def test_what_a_killed_owner_left_is_reaped_and_nothing_else(folder: Path) -> None:
    async with stand_in(folder) as ours:
        owner = subprocess.Popen([sys.executable, "-c", OWNER, str(folder)], stdout=subprocess.PIPE, text=True)
        assert owner.stdout is not None
        line = await asyncio.to_thread(owner.stdout.readline)
        left, pid = line.split()
        notes = ServerNotes()
        assert await reap_servers(notes) == [], "its owner lives"
        owner.kill()
        owner.wait()
        owner.stdout.close()
        os.kill(int(pid), signal.SIGKILL)  # its API process alone
        wait_until(lambda: len(family(left)) == 1, "EngineCore is left")
        told = await reap_servers(notes, dry_run=True)
        assert [(each.id, len(each.pids)) for each in told] == [(left, 1)]
        assert len(family(left)) == 1
        assert [each.id for each in await reap_servers(notes)] == [left]
        assert family(left) == set()
        assert await reap_servers(notes) == []
        assert len(family(ours.id)) == 2
        assert [note.id for note in notes.list()] == [ours.id]
        status, _ = await ours.control.get("/health")
        assert status == 200


async def test_logs_are_kept_but_not_for_ever(folder: Path, tmp_path: Path) -> None:
    notes = ServerNotes(tmp_path)
    ids = []
    for _ in range(50):
        note = notes.open("policy")
        notes.log(note.id).write_text("x")
        notes.close(note.id)
        ids.append(note.id)
    kept = {path.stem for path in (tmp_path / "models" / "logs").iterdir()}
    assert len(kept) <= 41
    assert ids[-1] in kept
