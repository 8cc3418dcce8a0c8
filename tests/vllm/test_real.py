"""One real vLLM on CPUs: it becomes ready, takes other weights while it runs, and leaves nothing when it is killed.

The judge is a direct forward pass with the same weights. In one file, in this order, since a start takes a minute.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deskroll.host.owner import process_start
from deskroll.models.vllm.family import family
from deskroll.models.vllm.notes import ServerNotes
from deskroll.models.vllm.server import VLLMServer
from deskroll.models.weights.adapters import adapter_name, load_adapter, unload_adapter
from deskroll.models.weights.checkpoint import read_checkpoint
from deskroll.models.weights.refresh import RefreshFailed, RefreshMode, RefreshStep, refresh
from tests.vllm.real import PYTHON, ask, ask_many, judge, real_server, run_tiny, until_running

pytestmark = pytest.mark.timeout(1200)
CLOSE = 0.01
FAR = 0.1
"""Weights that differ are further apart than that for some token of every answer."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    if not PYTHON.exists():
        pytest.skip("there is no .venv-vllm: run make vllm")
    folder = tmp_path_factory.mktemp("models")
    for version in (1, 2, 3):
        run_tiny("make", str(folder / f"step_{version}"), str(version))
    return [folder / f"step_{version}" for version in (1, 2, 3)]


@pytest.fixture(scope="module")
async def server(models: list[Path]) -> AsyncIterator[VLLMServer]:
    async with real_server(models[0], enable_lora=True) as server:
        print(f"\nready after {server.ready_s:.1f} s")
        yield server


async def test_a_server_is_ready_and_exact(server: VLLMServer, models: list[Path], tmp_path: Path) -> None:
    answers = [
        await ask(server, words, temperature=temperature) for words in ("hello", "click") for temperature in (1.0, 0.7)
    ]
    (judged,) = judge(tmp_path, models[:1], [each.case for each in answers])
    worst = max(answer.distance(truth) for answer, truth in zip(answers, judged, strict=True))
    print(f"log-probabilities within {worst:.2g}")
    assert worst < CLOSE


@pytest.mark.parametrize(("mode", "number"), [(RefreshMode.DRAIN, 1), (RefreshMode.KEEP, 2)])
async def test_a_refresh_changes_what_is_said(
    server: VLLMServer, models: list[Path], tmp_path: Path, mode: RefreshMode, number: int
) -> None:
    old = await ask_many(server, 8, "the same long beginning of a prompt, " * 10)
    waiting = None
    if mode is RefreshMode.KEEP:
        waiting = asyncio.create_task(ask_many(server, 8, "these stay open", tokens=900))
        await until_running(server, 8)
    done = await refresh(server.control, read_checkpoint(models[number]), mode, model=server.model)
    new = await ask_many(server, 8, "the same long beginning of a prompt, " * 10)
    kept = await waiting if waiting else []
    assert all(len(answer.logprobs) == 900 for answer in kept)
    truths = judge(tmp_path, models, [each.case for each in (*old, *new)])
    print(f"{mode}: {done.seconds * 1000:.0f} ms, paused for {done.paused_s * 1000:.0f} ms")
    for answers, start, version in ((old, 0, number - 1), (new, len(old), number)):
        for n, answer in enumerate(answers, start):
            distances = [answer.distance(truth[n]) for truth in truths]
            assert distances[version] < CLOSE
            assert all(far > FAR for other, far in enumerate(distances) if other != version)
    status, body = await server.control.get("/weight_info")
    assert (status, str(number + 1) in body.decode()) == (200, True)


async def test_requests_that_were_kept_end_with_the_new_weights(
    server: VLLMServer, models: list[Path], tmp_path: Path
) -> None:
    waiting = asyncio.create_task(ask_many(server, 32, "these stay open", tokens=900))
    await until_running(server, 32)
    await refresh(server.control, read_checkpoint(models[0]), RefreshMode.KEEP, model=server.model)
    kept = await waiting
    before, after = judge(tmp_path, [models[2], models[0]], [each.case for each in kept])
    turns = []
    for answer, old, new in zip(kept, before, after, strict=True):
        # Some tokens with the old weights, then all others with the new ones; a cache of the old would fit neither.
        turn = next((n for n, said in enumerate(answer.logprobs) if abs(said - old[n]) > CLOSE), len(old))
        pairs = zip(answer.logprobs[turn:], new[turn:], strict=True)
        assert all(abs(said - right) < CLOSE for said, right in pairs)
        turns.append(turn)
    print(f"weights changed after {min(turns)} to {max(turns)} of 900 tokens")
    assert min(turns) < 900


async def test_a_reload_of_what_is_there_is_noticed(server: VLLMServer, models: list[Path]) -> None:
    with pytest.raises(RefreshFailed, match="are the same after the reload") as caught:
        await refresh(server.control, read_checkpoint(models[0]), RefreshMode.DRAIN, model=server.model)
    assert caught.value.step is RefreshStep.PROVE
    again = await refresh(
        server.control, read_checkpoint(models[0]), RefreshMode.DRAIN, model=server.model, same_tensors=True
    )
    assert again.before == again.after


async def test_open_requests_hold_the_cache_unless_they_are_reset(server: VLLMServer) -> None:
    waiting = asyncio.create_task(ask_many(server, 16, "these hold blocks", tokens=900))
    await until_running(server, 16)
    # Unless it is told not to, a pause throws the blocks of open requests away by itself.
    await server.control.post("/pause", params={"mode": "keep", "clear_cache": "false"})
    assert not waiting.done()
    refused = await server.control.post("/reset_prefix_cache")
    done = await server.control.post("/reset_prefix_cache", params={"reset_running_requests": "true"})
    await server.control.post("/resume")
    assert (refused, done) == ((200, b'{"success":false}'), (200, b'{"success":true}'))
    assert all(len(answer.logprobs) == 900 for answer in await waiting)


async def test_adapters_are_pinned_by_name(server: VLLMServer, tmp_path: Path) -> None:
    first = None
    said = []
    for version in (1, 2):
        run_tiny("adapter", str(tmp_path / f"step_{version}"), str(version))
        checkpoint = read_checkpoint(tmp_path / f"step_{version}")
        proof = await load_adapter(server.control, checkpoint, server.model, unlike=first)
        first = proof
        said.append(proof)
    assert said[0].distance(said[1]) > FAR
    for version in (1, 2):
        await unload_adapter(server.control, adapter_name(server.model, version))
    await unload_adapter(server.control, adapter_name(server.model, 1))


async def test_a_killed_api_process_leaves_nothing(server: VLLMServer) -> None:
    """The last one: it ends the server."""
    before = family(server.id)
    print(f"{len(before)} processes")
    assert len(before) >= 2
    os.kill(server.pid, signal.SIGKILL)
    died = await server.died
    assert "was ended by signal 9" in str(died)
    print(f"left by the kill: {len(family(server.id))}")
    await server.stop()
    assert family(server.id) == set()
    assert all(process_start(pid) == 0 for pid in before)
    assert not server.socket.parent.exists()
    assert server.id not in [note.id for note in ServerNotes().list()]
