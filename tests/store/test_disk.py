"""Disks that are full or read-only: a clear error, and nothing that was done before is lost."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deskroll.errors import StoreError
from deskroll.store import AttemptReader, AttemptWriter, Run, RunStore, Storage
from deskroll.store.journal import Planned, Sealed
from tests.store.records import PNG, episode, info, key

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


@contextlib.contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *options, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=1m", "tmpfs") as folder:
        yield folder


def fill(folder: Path) -> Path:
    """Leave not a single page free."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return path


async def test_a_full_disk_stops_the_journal_and_spoils_nothing(small_disk: Path) -> None:
    root = small_disk / "run"
    told: list[StoreError] = []
    planned = 0
    with pytest.raises(StoreError, match=r"cannot write .*journal.jsonl: the disk is full: make room, then resume"):
        async with RunStore.create(root, info()) as store:
            store.failed.add_done_callback(lambda failed: told.append(failed.result()))
            store.write(Sealed(episode=episode(key()), epoch=1))
            await store.sync()
            filler = fill(small_disk)
            while True:
                store.write(Planned(phase="eval", round=0, task=f"t{planned}", samples=1, digest="x" * 500))
                await store.sync()
                planned += 1
    assert [str(error) for error in told] == [str(store.failed.result())]
    with pytest.raises(StoreError, match="the disk is full"):
        store.write(Planned(phase="eval", round=0, task="more", samples=1))
    with pytest.raises(StoreError, match="the disk is full"):
        await store.sync()
    assert (root / "journal.jsonl").read_bytes().endswith(b"\n")
    run = Run.open(root)
    assert run.outcomes() == [episode(key())]
    assert len(run.index.planned) == planned
    filler.unlink()
    async with RunStore.resume(root) as store:
        assert store.epoch == 2
        assert store.index.done == 1
        store.write(Planned(phase="eval", round=1, task="more", samples=1))
    assert len(Run.open(root).index.planned) == planned + 1


async def test_a_run_that_ends_after_the_failure_says_so(small_disk: Path) -> None:
    with pytest.raises(StoreError, match="the disk is full"):
        async with RunStore.create(small_disk / "run", info()) as store:
            fill(small_disk)
            for number in range(40):
                store.write(Planned(phase="eval", round=0, task=f"t{number}", samples=1, digest="x" * 500))
            await asyncio.wait_for(asyncio.shield(store.failed), 30)


async def test_an_attempt_on_a_full_disk_is_never_sealed(small_disk: Path) -> None:
    storage = Storage.at(small_disk)
    async with AttemptWriter(storage, key(), 1) as writer:
        writer.message(b'{"kept":1}')
        fill(small_disk)
        with pytest.raises(StoreError, match=r"cannot write .*screens/0.png: the disk is full"):
            writer.screen(PNG + bytes(9000))
        with pytest.raises(StoreError, match="the disk is full"):
            for _ in range(100):
                writer.message(b'{"text":"%s"}' % (b"x" * 500))
        with pytest.raises(StoreError, match="the disk is full"):
            await writer.seal(episode(key()))
    found = AttemptReader(storage, writer.name)
    assert not found.sealed
    assert found.messages()[0] == b'{"kept":1}'


async def test_a_read_only_folder_is_named(tmp_path: Path) -> None:
    root = tmp_path / "run"
    async with RunStore.create(root, info()):
        pass
    with mounted(root, "--bind", str(root)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(root)], check=True, capture_output=True)
        assert Run.open(root).info.run_id == "run-1"
        for wrong in (RunStore.resume(root), RunStore.create(root / "sub", info())):
            with pytest.raises(StoreError, match=rf"cannot .* {root}.*: the file system is mounted read-only: remount"):
                async with wrong:
                    raise AssertionError("nothing can be written")
        with pytest.raises(StoreError, match="mounted read-only"):
            AttemptWriter(Storage.at(root), key(), 1)


async def test_a_path_through_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="a file of that name is in the way: move it away, or choose another"):
        async with RunStore.create(tmp_path / "file" / "run", info()):
            raise AssertionError("no folder")
