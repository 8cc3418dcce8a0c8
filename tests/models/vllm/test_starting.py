"""A pool whose servers are not up yet: what it says of its weights, what askers are told, and when it gives up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from deskroll.errors import ModelError
from deskroll.host.listen import Listen
from deskroll.models.vllm.config import ModelPoolConfig
from deskroll.models.vllm.pool import ModelServicePool
from deskroll.models.vllm.service import control_listen, serve_control
from deskroll.models.vllm.waiting import tell_waiting
from tests.models.vllm.askers import ask
from tests.models.vllm.scripted_pool import ScriptedServers, scripted_pool
from tests.models.weights.files import one_file
from tests.waiting import eventually


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return one_file(tmp_path / "w" / "step_1", fill=0.1)


@pytest.fixture
def servers(tmp_path_factory: pytest.TempPathFactory) -> ScriptedServers:
    return ScriptedServers(tmp_path_factory.mktemp("s"))


async def test_what_another_start_cannot_mend_is_given_up_at_once_and_askers_are_told(
    base: Path, servers: ScriptedServers
) -> None:
    told: list[str] = []
    servers.fail_starts, servers.hopeless, servers.are_held = 10, True, True
    async with scripted_pool(servers, base, told) as pool:
        asking = asyncio.create_task(ask(pool))

        async def waits() -> bool:
            return (await pool.status()).waiting == 1

        await eventually(waits, "it waits for a server")
        servers.started[0].may_start.set()
        with pytest.raises(ModelError, match="no server of the pool is up:\nout of memory"):
            await pool.ready()
        with pytest.raises(ModelError, match="no server of the pool is up:\nout of memory"):
            await asking
        assert (await pool.status()).replicas[0].state == "given up"
    assert told == ["server 0: out of memory\ngiven up: another start would end in the same way"]
    assert len(servers.started) == 1


async def test_newer_weights_that_cannot_be_blamed_are_not_taken_back(base: Path, servers: ScriptedServers) -> None:
    one_file(base.parent / "step_2", fill=0.2, marker="READY")
    servers.fail_starts, servers.hopeless = 10, True
    weights = {"source": str(base.parent), "poll": 3600}
    async with scripted_pool(servers, base, [], weights=weights) as pool:
        with pytest.raises(ModelError):
            await pool.ready()
        assert (pool.checkpoint_info().version, pool.checkpoint_info().refused) == ("2", "")
    assert len(servers.started) == 1


async def test_weights_are_chosen_while_servers_start_and_served_once_one_is_up(
    base: Path, servers: ScriptedServers
) -> None:
    notes: list[str] = []
    servers.are_held = True
    weights = {"source": str(base.parent), "poll": 3600}
    config = ModelPoolConfig.model_validate({"ckpt_path": str(base), "gpus": "none", "weights": weights})
    async with ModelServicePool(config, make=servers, note=notes.append) as pool:
        newer = one_file(base.parent / "step_3", fill=0.3, marker="READY")
        chosen = await pool.load_latest_model()
        assert (chosen.changed, chosen.up) == (True, 0)
        assert "is chosen, and no server is up yet" in chosen.shown
        assert f"nothing newer; version 3 in {newer} is chosen" in (await pool.load_latest_model()).shown
        assert "server 0: starting; its log: " in (await pool.status()).waits_for
        servers.started[0].may_start.set()
        await pool.ready()
        assert (await pool.load_latest_model()).shown == f"nothing newer; version 3 in {newer} is served"
        assert (await pool.status()).waits_for == ""
        newest = one_file(base.parent / "step_4", fill=0.4, marker="READY")
        assert (await pool.load_latest_model()).up == 1
    assert notes == [chosen.shown, f"version 4 in {newest} is served"]


async def test_who_went_back_stays_there_though_the_newer_folder_is_marked_late(
    base: Path, servers: ScriptedServers
) -> None:
    servers.are_held = True
    weights = {"source": str(base.parent), "poll": 3600}
    async with scripted_pool(servers, base, [], weights=weights) as pool:
        newer = one_file(base.parent / "step_3", fill=0.3)
        assert [(await pool.load_latest_model()).checkpoint.version for _ in range(2)] == ["1", "3"]
        (newer / "READY").touch()
        went = await pool.reload(base)
        assert (went.went_back, went.up, went.checkpoint.version) == (True, 0, "1")
        assert not (await pool.load_latest_model()).changed, "its marker alone is new"
        (newer / "STABLE").touch()
        servers.started[0].may_start.set()
        await pool.ready()
        assert not (await pool.load_latest_model()).changed
        assert (await ask(pool)).version == "1"
        one_file(newer, fill=0.35)
        assert (await pool.load_latest_model()).checkpoint.version == "3", "it was written anew"


async def test_who_asks_is_told_that_servers_start_and_why_the_last_one_did_not(
    base: Path, servers: ScriptedServers, tmp_path_factory: pytest.TempPathFactory
) -> None:
    listen = Listen(path=str(tmp_path_factory.mktemp("l") / "models.sock"))
    told: list[str] = []
    servers.fail_starts, servers.are_held = 1, True
    config = ModelPoolConfig(ckpt_path=str(base), gpus="none")

    async def is_told(text: str) -> None:
        async def found() -> bool:
            return any(text in line for line in told)

        await eventually(found, text)

    async with (
        ModelServicePool(config, make=servers, listen=listen) as pool,
        serve_control(pool, control_listen(listen)),
    ):
        async with tell_waiting(pool.address, told.append, every=0.02):
            await is_told("is up yet, and requests wait for it: server 0: starting; its log: ")
            servers.started[0].may_start.set()
            await is_told("; the one before it: out of memory")
        count = len(told)
        servers.started[1].may_start.set()
        await pool.ready()
        async with tell_waiting(pool.address, told.append, every=0.0):
            assert (await ask(pool)).text
    async with tell_waiting(str(listen), told.append, every=0.0), tell_waiting("", told.append):
        await asyncio.wait([asyncio.create_task(asyncio.sleep(0))])
    assert len(told) == count == len(set(told)), (
        "each is told once, and nothing where a server is up or there is no pool"
    )
