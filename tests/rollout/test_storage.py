"""Where a run is kept: a disk that fills up, a folder that cannot be written, an object store."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deskroll.errors import StoreError
from deskroll.store.journal import Started
from tests.rollout.conftest import ANSWER, CALCULATE, Runs, questions, script, until

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="mounting takes root")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few hundred kilobytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@needs_root
@pytest.mark.parametrize("backend", ["inline", "process"])
async def test_a_full_disk_stops_the_run_with_a_clear_error_and_loses_nothing(small_disk: Path, backend: str) -> None:
    runs = Runs(small_disk)
    tasks = questions(100)
    with pytest.raises(StoreError, match=r"no room|full|No space"):
        await runs.run(script(CALCULATE, CALCULATE, ANSWER), tasks, backend=backend, workers=2)
    done = runs.read().outcomes()
    assert 0 < len(done) < 100
    assert runs.read().verify() == []
    subprocess.run(["mount", "-o", "remount,size=40m", str(small_disk)], check=True)
    outcomes = await runs.run(script(CALCULATE, CALCULATE, ANSWER), tasks, backend=backend, workers=2, resume=True)
    assert [each.score.value for each in outcomes] == [1.0] * 100
    before = {(each.key, each.attempt) for each in done}
    assert before < {(each.key, each.attempt) for each in outcomes}, "what was done before is as it was"


@needs_root
async def test_a_read_only_folder_is_refused_and_left_as_it_is(small_disk: Path) -> None:
    runs = Runs(small_disk)
    await runs.run(script(ANSWER), questions(2))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StoreError, match=r"(?i)read-only"):
        await runs.run(script(ANSWER), questions(2), resume=True)
    with pytest.raises(StoreError, match=r"(?i)read-only"):
        await runs.run(script(ANSWER), questions(2), run_id="another")
    assert len(runs.read().outcomes()) == 2
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert len(await runs.run(script(ANSWER), questions(2), resume=True)) == 2


async def test_a_run_in_an_object_store_is_stopped_and_resumed(bucket: str) -> None:
    runs = Runs(bucket)
    tasks = questions(12)
    async with runs.open(script(CALCULATE, ANSWER, latency=0.1), tasks, backend="process", num_rollouts=2) as session:
        work = asyncio.create_task(session.run())
        await until(lambda: session.state.standing().done >= 3, "some are done")
        session.stop()
        first = await work
    assert 3 <= len(first) < 12
    outcomes = await runs.run(script(CALCULATE, ANSWER), tasks, backend="process", resume=True)
    assert [each.score.value for each in outcomes] == [1.0] * 12
    run = runs.read()
    assert (len(run.outcomes()), run.unfinished(), run.verify()) == (12, [], [])
    assert len(run.attempt(outcomes[0].key, 1).messages()) == 5


async def test_stop_now_leaves_out_nobody_who_is_about_to_begin(bucket: str) -> None:
    """In an object store, a resumed attempt looks for a free folder between its permit and its beginning."""
    runs, tasks = Runs(bucket), questions(4)
    async with runs.open(script(ANSWER), tasks) as session:
        session.stop()
        assert await session.run() == []
    async with runs.open(script(ANSWER, latency=3600.0), tasks, resume=True) as session:
        work = asyncio.create_task(session.run())
        while not session.engine.limits.episodes.used:
            assert not work.done()
            await asyncio.sleep(0)
        session.stop(now=True)
        assert await asyncio.wait_for(work, 20) == []
    assert list(runs.read().records(Started)) == []
