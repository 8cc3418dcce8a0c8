"""Runs in an object store: a real S3 protocol over HTTP, and fsspec's store in memory."""

import asyncio
import os
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from deskroll.errors import InputError, StoreError
from deskroll.store import AttemptReader, AttemptWriter, CloseReason, Run, RunStore, Storage, find_run
from deskroll.store.info import encode
from deskroll.store.journal import Opened, Planned, Reopened, Sealed, Started
from deskroll.store.objects import ObjectStorage
from tests.store.records import PNG, episode, info, key, lost, step

PLAN = Planned(phase="eval", round=0, task="task", samples=2)


@pytest.fixture(params=["s3", "memory"])
def out(request: pytest.FixtureRequest) -> Iterator[str]:
    """A folder in an object store."""
    if request.param == "s3":
        yield request.getfixturevalue("bucket") + "/out"
    else:
        yield f"memory://{uuid.uuid4()}/out"


async def test_a_run_and_its_resume(out: str, tmp_path: Path) -> None:
    root = f"{out}/run-1"
    async with RunStore.create(root, info()) as store:
        assert store.lock_fd is None
        store.note(socket="/nowhere")
        store.write(PLAN, Started(key=key(), attempt=1, epoch=1))
        async with AttemptWriter(store.storage, key(), 1) as writer:
            writer.message(b'{"a":1}')
            writer.step(step(0, token_ids=(1, 2)))
            writer.screen(PNG)
            await writer.seal(lost(key()))
        store.write(Sealed(episode=lost(key()), epoch=1))
        await store.sync()
        live = await asyncio.to_thread(Run.open, root)
        assert live.index.done == 1
        assert live.index.closed is None
    async with RunStore.resume(root) as store:
        assert store.epoch == 2
        assert store.index.unfinished() == [key(sample=1)]
        store.write(Reopened(key=key(), epoch=2, at=1.0))
        for of, attempt in ((key(), await store.next_attempt(key())), (key(sample=1), 1)):
            store.write(Started(key=of, attempt=attempt, epoch=2))
            async with AttemptWriter(store.storage, of, attempt) as writer:
                await writer.seal(episode(of, attempt))
            store.write(Sealed(episode=episode(of, attempt), epoch=2))
        await store.write_summary(b"{}")
    run = Run.open(find_run(out))
    assert run.outcomes() == [episode(key(), 2), episode(key(sample=1))]
    assert run.index.closed is not None
    assert run.index.closed.why is CloseReason.FINISHED
    assert run.verify() == []
    assert run.holder() is None
    first = run.attempt(key(), 1)
    assert (first.messages(), first.steps(), first.image("screens/0.png")) == (
        [b'{"a":1}'],
        [step(0, token_ids=(1, 2))],
        PNG,
    )
    assert first.files() == ["conversation.json", "episode.json", "screens/0.png", "steps.jsonl", "tokens.npz"]
    assert {"run.json", "journal.jsonl", "results.jsonl", "summary.json"} <= set(run.storage.list())
    assert run.storage.read("results.jsonl").count(b"\n") == 2
    copy_all(run.storage, "", tmp_path)
    async with RunStore.resume(tmp_path) as store:  # a copy on a local path is a run as well
        assert store.epoch == 3
        assert store.index.done == 2
    assert Run.open(tmp_path).outcomes() == run.outcomes()


def copy_all(storage: Storage, folder: str, target: Path) -> None:
    for name in storage.list(folder):
        path = f"{folder}/{name}".strip("/")
        if name.endswith("/"):
            (target / path).mkdir()
            copy_all(storage, path, target)
        else:
            (target / path).write_bytes(storage.read(path))


async def test_whoever_takes_over_supersedes_the_one_before(out: str) -> None:
    root = f"{out}/run"
    with pytest.raises(StoreError, match="was taken over: another process resumed it"):
        async with RunStore.create(root, info()) as first:
            first.write(PLAN)
            await first.sync()
            async with RunStore.resume(root) as second:
                assert second.epoch == 2
                first.write(Sealed(episode=lost(key()), epoch=1))
                with pytest.raises(StoreError, match="was taken over"):
                    await first.sync()
                second.write(Sealed(episode=episode(key(), 2), epoch=2))
                await second.sync()
            raise first.failed.result()
    run = Run.open(root)
    assert run.outcomes() == [episode(key(), 2)]
    assert run.index.planned == [PLAN]
    assert [opened.epoch for opened in run.records(Opened)] == [1, 2]


async def test_two_who_take_over_at_once_get_different_epochs(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one_at_a_time, write_new = threading.Lock(), ObjectStorage.write_new

    def atomic(storage: ObjectStorage, path: str, data: bytes) -> bool:
        """As a real object store does it; the ones for tests look first and write then."""
        with one_at_a_time:
            return write_new(storage, path, data)

    monkeypatch.setattr(ObjectStorage, "write_new", atomic)
    root = f"{out}/run"
    async with RunStore.create(root, info()):
        pass

    async def take() -> int:
        try:
            async with RunStore.resume(root) as store:
                return store.epoch
        except StoreError as error:
            assert "taken over" in str(error)
            return 0

    epochs = sorted(await asyncio.gather(take(), take(), take()))
    assert epochs[-1] == 4
    assert len({epoch for epoch in epochs if epoch}) == len([epoch for epoch in epochs if epoch])
    assert Run.open(root).index.epoch == 4


async def test_a_long_journal_lies_in_several_parts(out: str) -> None:
    root = f"{out}/run"
    async with RunStore.create(root, info()) as store:
        for part in range(3):
            store.write(
                *(Planned(phase="eval", round=part, task=f"t{n}", samples=1, digest="x" * 5000) for n in range(250))
            )
            await store.sync()
        names = await asyncio.to_thread(store.storage.list, "journal.d")
    assert [name for name in names if name.endswith(".jsonl")] == [f"000001-00000{n}.jsonl" for n in range(3)]
    assert len(Run.open(root).index.planned) == 750
    async with RunStore.resume(root) as store:
        assert len(store.index.planned) == 750
    assert len(Run.open(root).index.planned) == 750


async def test_a_journal_in_parts_is_no_lost_journal(out: str, tmp_path: Path) -> None:
    root = f"{out}/run"
    with pytest.raises(ValueError, match="killed"):  # before journal.jsonl is written, as far as its store can tell
        async with RunStore.create(root, info()) as store, AttemptWriter(store.storage, key(), 1) as writer:
            store.write(PLAN)
            await writer.seal(episode(key()))
            await store.sync()
            await asyncio.to_thread(copy_all, store.storage, "", tmp_path)
            raise ValueError("killed")
    assert not (tmp_path / "journal.jsonl").exists()
    assert Run.open(tmp_path).index.planned == [PLAN]
    async with RunStore.resume(tmp_path) as store:
        assert store.index.planned == [PLAN]
    lost = f"{out}/lost"
    Storage.at(lost).write_atomic("run.json", encode(info()))
    assert (await asyncio.to_thread(Run.open, lost)).outcomes() == []
    Storage.at(lost).write_atomic("episodes/eval/0/task/0/1/episode.json", b"{}")
    with pytest.raises(StoreError, match=r"journal.jsonl is missing: the run's files are damaged"):
        async with RunStore.resume(lost):
            raise AssertionError("everything would be done again")
    assert Storage.at(lost).list() == ["episodes/", "run.json"]


async def test_a_run_is_made_once(out: str) -> None:
    async with RunStore.create(f"{out}/run", info()):
        pass
    with pytest.raises(StoreError, match="holds a run already"):
        async with RunStore.create(f"{out}/run", info()):
            raise AssertionError("made twice")


async def test_an_attempt_is_sealed_once_and_evidence_is_kept(out: str) -> None:
    storage = Storage.at(out)
    async with AttemptWriter(storage, key(), 1) as writer:
        writer.message(b'{"a":1}')
    assert AttemptReader(storage, writer.name).messages() == [b'{"a":1}']
    assert not AttemptReader(storage, writer.name).sealed
    async with AttemptWriter(storage, key(), 2) as writer:
        await writer.seal(episode(key(), 2))
    async with AttemptWriter(storage, key(), 2) as again:
        with pytest.raises(StoreError, match="was sealed before") as raised:
            await again.seal(episode(key(), 2))
    shutil.rmtree(str(raised.value).rpartition(" ")[2])


async def test_an_attempt_that_cannot_be_uploaded_is_kept(bucket: str) -> None:
    storage = Storage.at("s3://no-such-bucket-anywhere/x")
    async with AttemptWriter(storage, key(), 1) as writer:
        writer.message(b'{"a":1}')
        with pytest.raises(StoreError, match=r"bucket does not exist.* What the attempt wrote is kept in ") as raised:
            await writer.seal(episode(key()))
    spool = Path(str(raised.value).rpartition(" ")[2])
    assert (spool / "conversation.json").read_bytes() == b'[\n{"a":1}\n]\n'
    shutil.rmtree(spool)


KILLED = """
import asyncio, os
from deskroll.errors import StoreError
from deskroll.store import AttemptWriter, Storage
from tests.store.records import episode, key

async def main():
    storage = Storage.at("memory://bucket/run")
    for last in (False, True):  # one that is sealed, and one that cannot be
        async with AttemptWriter(storage, key(), 1) as writer:
            writer.message(b'{"a":1}')
            try:
                await writer.seal(episode(key(), 1))
            except StoreError:
                assert last
    AttemptWriter(storage, key(), 2).message(b'{"a":2}')
    os._exit(1)

asyncio.run(main())
"""
NEXT = """
import asyncio, os, tempfile
from deskroll.store import AttemptWriter, RunStore, Storage
from tests.store.records import info, key

async def main():
    async with AttemptWriter(Storage.at("memory://bucket/other"), key(), 1) as live:
        live.message(b'{"a":3}')
        async with RunStore.create("memory://bucket/run", info()):
            live.message(b'{"a":4}')
            print(*sorted(os.listdir(tempfile.gettempdir())))

asyncio.run(main())
"""


def test_what_killed_workers_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    def said(script: str) -> list[str]:
        env = {**os.environ, "TMPDIR": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
        assert not done.stderr
        return done.stdout.split()

    said(KILLED)
    left, kept = sorted(tmp_path.iterdir())
    assert left.name.startswith("deskroll-attempt-")
    assert (kept / "conversation.json").read_bytes() == b'[\n{"a":1}\n]\n'
    live, *others = said(NEXT)
    assert live.startswith("deskroll-attempt-")
    assert live != left.name
    assert others == [kept.name], "what could not be uploaded is there still"
    assert list(tmp_path.iterdir()) == [kept]


def test_a_bucket_that_is_not_there(bucket: str) -> None:
    storage = Storage.at("s3://no-such-bucket-anywhere/x")
    with pytest.raises(StoreError, match=r"cannot write s3://no-such-bucket-anywhere/x/a: the bucket does not exist"):
        storage.write_atomic("a", b"")
    with pytest.raises(InputError, match="is not a run and holds none"):
        find_run("s3://no-such-bucket-anywhere/x")


def test_an_object_that_is_not_there(out: str) -> None:
    storage = Storage.at(out)
    assert not storage.exists("a")
    assert storage.list("a") == []
    with pytest.raises(StoreError, match="there is no such object"):
        storage.read("a")
    storage.write_atomic("a", b"12345")
    assert (storage.read("a", 2), storage.read("a", 5), storage.size("a")) == (b"345", b"", 5)
    with pytest.raises(StoreError, match="not a path below"):
        storage.read("../a")


def test_a_password_in_an_address_is_never_shown() -> None:
    shown = Storage.at("memory://user:secret@host/x").shown("y")
    assert "secret" not in shown
    assert shown.endswith("/x/y")
