"""Refresh of one server over real HTTP: the order of requests, what counts as done, and what does not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deskroll.models.vllm.server import VLLMServer
from deskroll.models.weights.adapters import adapter_name, adapters_to_unload, load_adapter, unload_adapter
from deskroll.models.weights.checkpoint import Checkpoint, read_checkpoint
from deskroll.models.weights.refresh import RefreshFailed, RefreshMode, RefreshStep, refresh
from tests.models.vllm.standing import stand_in
from tests.models.weights.files import one_file, safetensors

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VLLMServer]:
    async with stand_in(one_file(tmp_path_factory.mktemp("weights") / "step_0", fill=0.125)) as server:
        yield server


@pytest.fixture
async def first(server: VLLMServer, tmp_path: Path) -> Checkpoint:
    """What the server has at the start of each test."""
    await misbehave(server, "")
    path = one_file(tmp_path / "step_1", fill=0.25)
    await server.control.post("/collective_rpc", json={"kwargs": {"weights_path": str(path)}})
    await misbehave(server, "")
    return read_checkpoint(path)


@pytest.fixture
def second(tmp_path: Path) -> Checkpoint:
    return read_checkpoint(one_file(tmp_path / "step_2", fill=0.5))


async def misbehave(server: VLLMServer, fault: str) -> None:
    await server.control.post("/stand-in", json={"fault": fault})


async def asked(server: VLLMServer) -> list[str]:
    """What the server was asked since the fault was set."""
    _, body = await server.control.get("/asked")
    found: list[str] = json.loads(body)
    return found


@pytest.mark.parametrize(
    ("mode", "pause", "reset"),
    [
        (RefreshMode.DRAIN, "/pause?mode=wait", "/reset_prefix_cache"),
        (RefreshMode.KEEP, "/pause?mode=keep", "/reset_prefix_cache?reset_running_requests=true"),
        (RefreshMode.ABORT, "/pause?mode=abort", "/reset_prefix_cache"),
    ],
)
async def test_the_order_of_a_refresh(
    server: VLLMServer, first: Checkpoint, second: Checkpoint, mode: RefreshMode, pause: str, reset: str
) -> None:
    done = await refresh(server.control, second, mode, model="policy")
    assert await asked(server) == [
        CHAT, CHAT, pause, "/collective_rpc", reset, "/reset_mm_cache", "/reset_encoder_cache",
        "/update_weight_version", "/resume", CHAT,
    ]  # fmt: skip
    assert (done.version, done.before.logprobs[-1], done.after.logprobs[-1]) == (2, -1.25, -1.5)
    assert done.seconds >= done.paused_s > 0


@pytest.mark.parametrize(
    ("path", "step"),
    [
        (CHAT, RefreshStep.BEFORE), ("/pause", RefreshStep.PAUSE), ("/collective_rpc", RefreshStep.RELOAD),
        ("/reset_prefix_cache", RefreshStep.RESET), ("/reset_mm_cache", RefreshStep.RESET),
        ("/reset_encoder_cache", RefreshStep.RESET), ("/update_weight_version", RefreshStep.VERSION),
        ("/resume", RefreshStep.RESUME),
    ],
)  # fmt: skip
async def test_an_error_half_way_says_where(
    server: VLLMServer, first: Checkpoint, second: Checkpoint, path: str, step: RefreshStep
) -> None:
    await misbehave(server, f"500 {path}")
    with pytest.raises(RefreshFailed, match=f"version 2, step {step}: .*500: it went wrong") as caught:
        await refresh(server.control, second, RefreshMode.DRAIN, model="policy")
    assert (caught.value.step, caught.value.touched) == (step, step is not RefreshStep.BEFORE)
    assert (await asked(server))[-1].startswith(path), "nothing is asked after it"


async def test_a_cache_that_was_not_reset_is_a_failure(
    server: VLLMServer, first: Checkpoint, second: Checkpoint
) -> None:
    await misbehave(server, "held")
    with pytest.raises(RefreshFailed, match="/reset_prefix_cache answered 200 without success"):
        await refresh(server.control, second, RefreshMode.DRAIN, model="policy")
    assert (await refresh(server.control, first, RefreshMode.KEEP, model="policy")).version == 1


async def test_a_reload_that_does_nothing_is_noticed(server: VLLMServer, first: Checkpoint, second: Checkpoint) -> None:
    await misbehave(server, "idle reload")
    with pytest.raises(RefreshFailed, match="are the same after the reload as before it") as caught:
        await refresh(server.control, second, RefreshMode.DRAIN, model="policy")
    assert caught.value.touched
    done = await refresh(server.control, first, RefreshMode.DRAIN, model="policy", same_tensors=True)
    assert done.before == done.after


async def test_what_differs_by_no_more_than_equal_weights_do_has_not_changed(
    server: VLLMServer, first: Checkpoint, tmp_path: Path
) -> None:
    await misbehave(server, "noise")
    with pytest.raises(RefreshFailed, match="are the same after the reload"):
        await refresh(server.control, first, RefreshMode.KEEP, model="policy")
    other = read_checkpoint(one_file(tmp_path / "step_3", fill=0.75))
    assert (await refresh(server.control, other, RefreshMode.KEEP, model="policy")).version == 3


async def test_a_server_that_dies_half_way_is_a_failure(tmp_path: Path, second: Checkpoint) -> None:
    async with stand_in(one_file(tmp_path / "step_1", fill=0.25)) as server:
        await misbehave(server, "die /collective_rpc")
        with pytest.raises(RefreshFailed, match="version 2, step reload: /collective_rpc: ") as caught:
            await refresh(server.control, second, RefreshMode.DRAIN, model="policy")
        assert caught.value.touched
        assert "signal 9" in str(await server.died)


def adapter(folder: Path, fill: float) -> Checkpoint:
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(safetensors({"a": (2, 2)}, fill))
    return read_checkpoint(folder)


async def test_adapters_have_a_name_for_each_version(server: VLLMServer, first: Checkpoint, tmp_path: Path) -> None:
    one = await load_adapter(server.control, adapter(tmp_path / "step_7", 0.5), "policy", unlike=None)
    two = await load_adapter(server.control, adapter(tmp_path / "step_8", 1.0), "policy", unlike=one)
    assert (one.logprobs[-1], two.logprobs[-1]) == (-1.75, -2.25)
    with pytest.raises(
        RefreshFailed, match="policy@9: it answers the fixed prompt exactly as the one before"
    ) as caught:
        await load_adapter(server.control, adapter(tmp_path / "step_9", 1.0), "policy", unlike=two)
    assert not caught.value.touched
    assert (await asked(server))[-1] == "/v1/unload_lora_adapter"
    for version in (7, 8, 9):  # the last of which is not there any more
        await unload_adapter(server.control, adapter_name("policy", version))


def test_adapters_that_nobody_uses_are_unloaded_but_the_last_two() -> None:
    assert adapters_to_unload([1, 2, 3, 4, 5], used=[2]) == [1, 3]
    assert adapters_to_unload([10, 9], used=[]) == []
    assert adapters_to_unload([], used=[1]) == []
