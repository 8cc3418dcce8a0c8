"""Whoever serves the model of a training run: weights are brought there, and versions of adapters are pinned."""

from __future__ import annotations

from pathlib import Path

import pytest

from deskroll.errors import ModelError
from deskroll.host.listen import Listen
from deskroll.models.vllm.service import control_listen, serve_control
from deskroll.train.servers import PoolElsewhere, Unrefreshed
from tests.models.vllm.scripted_pool import ScriptedServers, scripted_pool
from tests.models.weights.files import one_file, safetensors


def adapter(folder: Path, number: int) -> Path:
    folder = folder / f"step_{number}"
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(safetensors({"a": (4,)}, fill=number))
    return folder


async def test_a_pool_elsewhere_serves_what_is_pinned_on(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    servers, base = ScriptedServers(tmp_path_factory.mktemp("s")), one_file(tmp_path / "step_0")
    async with scripted_pool(servers, base, [], enable_lora=True) as pool:
        await pool.ready()
        async with serve_control(pool, control_listen(Listen.parse(pool.address))):
            elsewhere = PoolElsewhere(pool.address, adapters=True)
            assert elsewhere.keeps_versions
            async with elsewhere.pinned(0) as name:
                assert name == "policy"
            await elsewhere.reload(adapter(tmp_path, 1))
            async with elsewhere.pinned(1) as name:
                assert name == "policy@1"
                for number in (2, 3, 4):
                    await elsewhere.reload(adapter(tmp_path, number))
                commands = servers.started[0].scripted.commands
                assert commands.count("/v1/unload_lora_adapter") == 1, "of the second: the last two stay"
            await elsewhere.reload(adapter(tmp_path, 5))
            with pytest.raises(ModelError, match="no server can be asked for version 1"):
                async with elsewhere.pinned(1):
                    pass


async def test_whole_weights_have_no_version_of_their_own(tmp_path: Path) -> None:
    for servers in (PoolElsewhere("unix:/nowhere", adapters=False), Unrefreshed()):
        assert not servers.keeps_versions
        async with servers.pinned(3) as name:
            assert name == ""
