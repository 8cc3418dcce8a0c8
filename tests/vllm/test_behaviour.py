"""A real vLLM behaves as the scripted server does: the same cases; and a refresh of it says what was done.

In this order: the last case ends the server.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from deskroll.models.base import ContextTooLong, ModelCall
from deskroll.models.messages import Message
from deskroll.models.openai import OpenAIModel
from deskroll.models.settings import ModelSettings
from deskroll.models.vllm.command import Place, ServerCommand, server_command
from deskroll.models.vllm.family import family
from deskroll.models.vllm.notes import ServerNotes
from deskroll.models.vllm.server import VLLMServer
from deskroll.models.weights.checkpoint import read_checkpoint
from deskroll.models.weights.refresh import RefreshFailed, RefreshMode, RefreshStep, refresh
from tests.models.vllm_cases import VllmCases
from tests.models.vllm_server import Vllm
from tests.vllm.real import START_S, make_models, real_config, sampling

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_models("vision", tmp_path_factory.mktemp("models"), 1, 2)


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_models("vision_adapter", tmp_path_factory.mktemp("adapters"), 1, 2)


@pytest.fixture(scope="module")
async def server(models: Path) -> AsyncIterator[VLLMServer]:
    config = real_config(models / "step_1", enable_lora=True)

    def make(place: Place) -> ServerCommand:
        return server_command(config, place, os.environ)

    async with VLLMServer(ServerNotes(), make, model=config.served_name, start_timeout=START_S) as server:
        print(f"\nready after {server.ready_s:.1f} s")
        yield server
    assert family(server.id) == set()


async def test_a_refresh_is_proved(server: VLLMServer, models: Path) -> None:
    first, second = (read_checkpoint(models / f"step_{version}") for version in (1, 2))
    for checkpoint in (second, first):
        done = await refresh(server.control, checkpoint, RefreshMode.DRAIN, model=server.model)
        print(f"\n{done.seconds * 1000:.0f} ms, paused for {done.paused_s * 1000:.0f} ms")
        assert done.before.distance(done.after) > 0.1
    with pytest.raises(RefreshFailed, match="are the same after the reload") as caught:
        await refresh(server.control, first, RefreshMode.DRAIN, model=server.model)
    assert caught.value.step is RefreshStep.PROVE
    again = await refresh(server.control, first, RefreshMode.KEEP, model=server.model, same_tensors=True)
    assert again.before == again.after
    await server.control.post("/update_weight_version", json={"new_version": "default"})


async def test_a_conversation_that_is_too_long_is_known_by_its_words(server: VLLMServer) -> None:
    async with OpenAIModel(ModelSettings(name=server.model, base_url=server.url)) as model:
        for length in (2040, 4000):  # too long with its answer, and by itself
            with pytest.raises(ContextTooLong):
                await model.complete([Message.user("x" * length).sent], call=ModelCall(sampling=sampling(100, 1.0)))


class TestReal(VllmCases):
    """One server for all cases."""

    @pytest.fixture
    async def vllm(self, server: VLLMServer, models: Path, adapters: Path) -> AsyncIterator[Vllm]:
        connector = aiohttp.UnixConnector(path=str(server.socket), force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            yield Vllm(
                session, "http://localhost", server.model, lambda version: models / f"step_{version}",
                lambda version: adapters / f"step_{version}", real=True,
            )  # fmt: skip
