"""A real vLLM with adapters: each version by a name of its own, requests pinned to theirs, old ones unloaded."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from deskroll.models.vllm.control import ServerControl
from deskroll.models.vllm.pool import ModelServicePool
from tests.vllm.real import Judged, Said, ask, make_models, real_pool
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(3600)
VERSIONS = (1, 2, 3, 4, 5)


async def loaded(pool: ModelServicePool) -> set[str]:
    """The adapters that the server lists."""
    (view,) = pool.endpoints()
    async with ServerControl(Path(view.name.removeprefix("unix:"))) as control:
        _, body = await control.get("/v1/models")
    return {card["id"] for card in json.loads(body)["data"] if card["parent"]}


async def until_open(pool: ModelServicePool, count: int) -> None:
    async def are_open() -> bool:
        return sum(view.in_flight for view in pool.endpoints()) >= count

    await eventually(are_open, f"{count} requests are open")


async def test_each_version_has_its_name_and_open_requests_keep_theirs(tmp_path: Path) -> None:
    base = make_models("text", tmp_path / "base", 0) / "step_0"
    made, source = make_models("adapter", tmp_path / "made", *VERSIONS), tmp_path / "source"
    source.mkdir()
    told: list[str] = []
    said: list[Said] = []
    pinned: list[asyncio.Task[Said]] = []
    weights = {"source": str(source), "poll": 3600}
    async with real_pool(base, told, weights=weights, enable_lora=True) as pool:
        await pool.ready()
        assert (await ask(pool, "hello")).completion.version == "0"
        for version in VERSIONS:
            (source / f"step_{version}").symlink_to(made / f"step_{version}")
            assert (await pool.load_latest_model()).checkpoint.version == str(version)
            said += await asyncio.gather(*(ask(pool, f"hello {n}") for n in range(8)))
            if version == 1:  # these stay open for long: what they ask for must stay, too
                pinned = [asyncio.create_task(ask(pool, f"a long story {n}", tokens=1500)) for n in range(4)]
                await until_open(pool, len(pinned))
        assert not all(task.done() for task in pinned), "they were too short to say anything"
        assert await loaded(pool) == {"policy@1", "policy@4", "policy@5"}
        said += await asyncio.gather(*pinned)
        (source / "step_6").symlink_to(make_models("adapter", tmp_path / "more", 6) / "step_6")
        await pool.load_latest_model()
        assert await loaded(pool) == {"policy@5", "policy@6"}
        assert told == []
    models = [f"{base}+{made / f'step_{version}'}" for version in VERSIONS]
    worst = Judged(tmp_path, models, said).check_versions(said, VERSIONS)
    assert {int(each.completion.version) for each in said} == set(VERSIONS)
    print(f"\n{len(said)} answers of {len(VERSIONS)} adapters: within {worst:.2g} of their own, and of no other")
