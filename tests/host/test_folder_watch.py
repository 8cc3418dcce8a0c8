"""A watch wakes whoever waits for a change in a folder; where nothing can be told, the wait's end does."""

from __future__ import annotations

import asyncio
from pathlib import Path

from deskroll.host.folder_watch import FolderWatch


async def test_a_change_ends_the_wait(tmp_path: Path) -> None:
    async with FolderWatch(tmp_path) as watch:
        assert await watch.wait(0.01) is False
        waiting = asyncio.ensure_future(watch.wait(600))
        await asyncio.sleep(0)
        (tmp_path / "new").touch()
        assert await asyncio.wait_for(waiting, 60)


async def test_a_change_between_two_waits_is_not_missed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    async with FolderWatch(tmp_path) as watch:
        with path.open("a") as file:
            file.write("more")
        assert await asyncio.wait_for(watch.wait(600), 60)
        while await watch.wait(0.01):  # closing it was a change, too
            pass
        (tmp_path / "moved").touch()
        path.rename(tmp_path / "moved")
        assert await asyncio.wait_for(watch.wait(600), 60)


async def test_where_nothing_can_be_told_the_wait_has_an_end(tmp_path: Path) -> None:
    async with FolderWatch(tmp_path / "nowhere") as watch:
        assert await watch.wait(0.01) is False


async def test_only_changes_of_what_concerns_it_wake(tmp_path: Path) -> None:
    async with FolderWatch(tmp_path, lambda name: name == "tasks.json") as watch:
        (tmp_path / "log.txt").write_text("more and more")
        assert await watch.wait(0.05) is False
        (tmp_path / "log.txt").write_text("and more")
        (tmp_path / "tasks.json").write_text("{}")
        assert await watch.wait(60) is True
