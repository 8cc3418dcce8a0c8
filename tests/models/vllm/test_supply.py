"""What a pool is to serve, where weights come from an object store: the last good ones stay until others are up."""

from __future__ import annotations

from pathlib import Path

import pytest

from deskroll.models.vllm.config import ModelPoolConfig
from deskroll.models.vllm.supply import Supply
from deskroll.models.weights.checkpoint import Checkpoint
from tests.models.weights.files import one_file

fsspec = pytest.importorskip("fsspec")


async def test_weights_that_are_gone_back_to_are_there_still(tmp_path: Path) -> None:
    url, fs = f"memory://supply-{tmp_path.name}", fsspec.filesystem("memory")
    start = one_file(tmp_path / "start", fill=0.1)
    weights = {"source": url, "cache": str(tmp_path / "cache")}
    config = ModelPoolConfig.model_validate({"ckpt_path": str(start), "weights": weights})
    told: list[str] = []
    supply = await Supply.open(config, told.append)

    async def serve_next(version: int) -> Checkpoint:
        made = one_file(tmp_path / "made" / f"step_{version}", fill=version, marker="READY")
        for file in made.iterdir():
            fs.pipe_file(f"{url}/{made.name}/{file.name}", file.read_bytes())
        found = await supply.newest()
        assert found is not None
        supply.serve(found)
        return found

    good = await serve_next(5)
    supply.note_up(good)
    skipped = await serve_next(6)  # and no server is up with it when the next one appears
    unfit = await serve_next(7)
    await serve_next(8)
    assert [each.path.is_dir() for each in (good, skipped, unfit)] == [True, False, True]
    assert supply.take_back(supply.served, "out of memory")
    assert supply.served is good
    assert "refused, and version 5 goes on" in told[0]
    supply.note_up(await serve_next(9))
    await serve_next(10)
    assert not good.path.exists(), "others are good by now"
