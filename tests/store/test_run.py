"""The coordinator's side: what it writes, who may, and what is left when it cannot."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from deskroll.errors import StoreError
from deskroll.store import AttemptWriter, CloseReason, Run, RunStore, journal
from deskroll.store.info import encode
from deskroll.store.journal import Opened, Planned, Reopened, Sealed, Started
from tests.store.records import episode, info, key, lost
from tests.waiting import eventually

PLAN = Planned(phase="eval", round=0, task="task", samples=2)


async def test_a_run_from_the_first_record_to_the_last(tmp_path: Path) -> None:
    root = tmp_path / "out" / "run-1"
    async with RunStore.create(root, info(), describe=lambda of: f"do {of.task} no {of.sample}") as store:
        store.write(PLAN)
        for sample, value in ((0, 1.0), (1, None)):
            of = key(sample=sample)
            store.write(Started(key=of, attempt=await store.next_attempt(of), epoch=store.epoch))
            async with AttemptWriter(store.storage, of, 1) as writer:
                await writer.seal(episode(of, value=value))
            store.write(Sealed(episode=episode(of, value=value), epoch=store.epoch))
        await store.sync()
        live = Run.open(root)
        assert live.index.closed is None
        assert live.index.done == 2
        assert (root / "results.jsonl").read_bytes().count(b"\n") == 2
        await store.write_summary(b"{}\n")
    run = Run.open(root)
    assert (run.info.run_id, run.info.config) == ("run-1", {"seed": 7})
    assert run.index.closed is not None
    assert run.index.closed.why is CloseReason.FINISHED
    assert run.outcomes() == [episode(key(sample=0)), episode(key(sample=1), value=None)]
    assert run.verify() == []
    first, second = map(json.loads, (root / "results.jsonl").read_text().splitlines())
    assert first == {
        "task_id": "task",
        "sample": 0,
        "phase": "eval",
        "round": 0,
        "attempt": 1,
        "question": "do task no 0",
        "answer": None,
        "success": True,
        "score": 1.0,
        "reason": "because",
        "found": None,
        "expected": None,
        "stop": "done",
        "error": None,
        "failure_class": None,
        "seconds": 12.5,
        "tokens": 13,
        "cost_usd": 0.5,
        "folder": "episodes/eval/0/task/0/1",
    }
    assert second["success"] is None
    assert (root / "summary.json").read_bytes() == b"{}\n"


async def test_a_resume_goes_on_with_a_higher_epoch(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path, info()) as store:
        store.write(PLAN, Started(key=key(), attempt=1, epoch=1), Sealed(episode=lost(key()), epoch=1))
        assert store.epoch == 1
    stopped = Run.open(tmp_path).index.closed
    assert stopped is not None
    assert stopped.why is CloseReason.STOPPED
    async with RunStore.resume(tmp_path) as store:
        assert store.epoch == 2
        assert store.info.run_id == "run-1"
        assert store.index.unfinished() == [key(sample=1)]
        outcome = store.index.outcome(key())
        assert outcome is not None
        assert outcome.score.value is None
        store.write(Reopened(key=key(), epoch=2, at=1.0, why="it was unscored"))
        number = await store.next_attempt(key())
        assert number == 2
        store.write(Started(key=key(), attempt=2, epoch=2), Sealed(episode=episode(key(), 2), epoch=2))
    run = Run.open(tmp_path)
    assert run.outcomes() == [episode(key(), 2)]
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 1
    assert [opened.epoch for opened in run.records(Opened)] == [1, 2]


async def test_nonsense_is_refused_and_not_written(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path, info()) as store:
        store.write(Sealed(episode=episode(key()), epoch=1))
        with pytest.raises(StoreError, match="has an outcome already"):
            store.write(Sealed(episode=episode(key(), 2), epoch=1))
        await store.sync()
    assert len(list(Run.open(tmp_path).records(Sealed))) == 1


async def test_an_attempt_that_the_journal_never_heard_of_keeps_its_folder(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path, info()) as store, AttemptWriter(store.storage, key(), 1) as writer:
        writer.message(b"{}")
    async with RunStore.resume(tmp_path) as store:
        assert await store.next_attempt(key()) == 2


async def test_what_comes_after_the_end_is_refused(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path, info()) as store:
        pass
    with pytest.raises(StoreError, match="the run was closed"):
        store.write(PLAN)
    await store.sync()


async def test_writes_share_syncs(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path, info()) as store:
        for number in range(2000):
            store.write(Planned(phase="eval", round=0, task=f"t{number}", samples=1))
        await store.sync()
        assert store.flushes < 20
        await store.sync()  # nothing to wait for
    assert len(Run.open(tmp_path).index.planned) == 2000


async def test_a_second_coordinator_is_told_who_holds_the_run(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path, info()) as store:
        store.note(socket="/somewhere.sock")
        holder = Run.open(tmp_path).holder()
        assert holder is not None
        assert (holder.pid, holder.socket) == (os.getpid(), "/somewhere.sock")
        with pytest.raises(StoreError, match=rf"in use by process {os.getpid()} on .* since 20.* waited 0.1 s"):
            async with RunStore.resume(tmp_path, wait_s=0.1):
                raise AssertionError("two coordinators")
    assert Run.open(tmp_path).holder() is None


async def test_an_orphaned_worker_holds_the_run_until_it_is_gone(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path, info()) as store:
        assert store.lock_fd is not None
        worker = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[store.lock_fd])
    assert worker.stdin is not None
    try:
        with pytest.raises(StoreError, match="workers that it left behind"):
            async with RunStore.resume(tmp_path, wait_s=0.0):
                raise AssertionError("the worker may still write")
        resumed = asyncio.create_task(_resume(tmp_path))
        worker.stdin.close()
        assert await resumed == 2
    finally:
        worker.stdin.close()
        worker.wait(timeout=30)


async def _resume(root: Path) -> int:
    async with RunStore.resume(root) as store:
        return store.epoch


async def test_a_run_is_made_once(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path, info()):
        pass
    with pytest.raises(StoreError, match="holds a run already: resume it"):
        async with RunStore.create(tmp_path, info()):
            raise AssertionError("made twice")


async def test_a_folder_that_is_no_run_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"is not a run: it has no run.json. Name the folder of a run"):
        async with RunStore.resume(tmp_path):
            raise AssertionError("no run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [None, b"", b"\0\0\0"], ids=["missing", "empty", "zeros"])
async def test_a_run_that_lost_its_journal_is_neither_read_nor_resumed(tmp_path: Path, content: bytes | None) -> None:
    async with RunStore.create(tmp_path, info()) as store, AttemptWriter(store.storage, key(), 1) as writer:
        store.write(PLAN, Started(key=key(), attempt=1, epoch=1))
        await writer.seal(episode(key()))
    journal_file = tmp_path / "journal.jsonl"
    journal_file.unlink()
    if content is not None:
        journal_file.write_bytes(content)
    words = rf"journal.jsonl is {'missing' if content is None else 'empty'}: the run's files are damaged"
    with pytest.raises(StoreError, match=words):
        Run.open(tmp_path)
    with pytest.raises(StoreError, match=words):
        async with RunStore.resume(tmp_path):
            raise AssertionError("everything would be done again")
    assert (journal_file.read_bytes() if journal_file.exists() else None) == content


@pytest.mark.parametrize("files", [[], ["journal.jsonl", "results.jsonl"]], ids=["run.json alone", "empty files"])
async def test_a_run_that_was_killed_before_it_began_is_resumed(tmp_path: Path, files: list[str]) -> None:
    (tmp_path / "run.json").write_bytes(encode(info()))
    for name in files:
        (tmp_path / name).touch()
    assert Run.open(tmp_path).outcomes() == []
    async with RunStore.resume(tmp_path) as store:
        assert store.epoch == 1


async def test_results_leave_out_what_is_no_longer_planned(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path, info()) as store:
        store.write(PLAN, *(Sealed(episode=episode(key(sample=n)), epoch=1) for n in range(2)))
    async with RunStore.resume(tmp_path) as store:
        store.write(msgspec.structs.replace(PLAN, samples=1, revised=True))
    assert [json.loads(line)["sample"] for line in (tmp_path / "results.jsonl").read_text().splitlines()] == [0]
    closed = Run.open(tmp_path).index.closed
    assert closed is not None
    assert closed.why is CloseReason.FINISHED


async def test_a_torn_line_is_cut_off_by_the_next_writer(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path, info()) as store:
        store.write(PLAN, Sealed(episode=episode(key()), epoch=1))
    for name in ("journal.jsonl", "results.jsonl"):
        with (tmp_path / name).open("ab") as file:
            file.write(b'{"type":"sea')
    assert Run.open(tmp_path).index.done == 1
    async with RunStore.resume(tmp_path) as store:
        store.write(Sealed(episode=episode(key(sample=1)), epoch=2))
        await store.sync()
        assert all(json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines())
    assert Run.open(tmp_path).index.done == 2


@pytest.mark.parametrize(
    ("error", "why"),
    [(ValueError("boom"), CloseReason.FAILED), (asyncio.CancelledError(), CloseReason.STOPPED)],
)
async def test_how_it_ended_is_written_down(tmp_path: Path, error: BaseException, why: CloseReason) -> None:
    with pytest.raises(type(error)):
        async with RunStore.create(tmp_path, info()):
            raise error
    closed = Run.open(tmp_path).index.closed
    assert closed is not None
    assert closed.why is why


async def test_the_caller_may_say_how_it_ended(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path, info()) as store:
        store.end_as(CloseReason.STOPPED, "enough")
    closed = Run.open(tmp_path).index.closed
    assert closed is not None
    assert (closed.why, closed.note) == (CloseReason.STOPPED, "enough")


async def test_a_reader_follows_a_live_run(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path, info()) as store:
        run = Run.open(tmp_path)
        store.write(PLAN)
        await store.sync()
        run.refresh()
        assert run.unfinished() == [key(sample=0), key(sample=1)]
        store.write(Sealed(episode=episode(key()), epoch=1))
        await store.sync()
        run.refresh()
        run.refresh()
        assert run.unfinished() == [key(sample=1)]
        assert run.index.episode(key()) == episode(key())


async def test_a_cancelled_close_still_leaves_whole_files(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def coordinator() -> None:
        async with RunStore.create(tmp_path, info()) as store:
            store.write(PLAN)
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(coordinator())
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert Run.open(tmp_path).index.planned == [PLAN]

    async def free() -> bool:
        return Run.open(tmp_path).holder() is None

    await eventually(free, "nobody holds the run")


CHILD = """
import asyncio, os, sys
from deskroll.store import AttemptWriter, RunStore
from deskroll.store.journal import Planned, Sealed, Started
from tests.store.records import PNG, episode, info, key, step

async def one(store, task, first):
    of = key(task)
    store.write(Started(key=of, attempt=first, epoch=store.epoch))
    async with AttemptWriter(store.storage, of, first) as writer:
        for index in range(5):
            writer.message(b'{"text":"' + task.encode() * 50 + b'"}')
            writer.screen(PNG + bytes([index]))
            writer.step(step(index))
            await asyncio.sleep(0)
        await writer.seal(episode(of, first))
    store.write(Sealed(episode=episode(of, first), epoch=store.epoch))
    await store.sync()
    os.write(1, task.encode() + b"\\n")

async def main(root, resume):
    async with RunStore.resume(root) if resume else RunStore.create(root, info()) as store:
        if not resume:
            store.write(*(Planned(phase="eval", round=0, task=f"t{n}", samples=1) for n in range(2000)))
            await store.sync()
        todo = store.index.unfinished()
        for start in range(0, len(todo), 8):
            await asyncio.gather(
                *[one(store, of.task, await store.next_attempt(of)) for of in todo[start : start + 8]]
            )
asyncio.run(main(sys.argv[1], sys.argv[2] == "resume"))
"""


def _killed_after(root: Path, how: str, outcomes: int) -> list[str]:
    """Run a coordinator, kill it when it has reported so many outcomes, and return those."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(root), how], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert child.stdout is not None
    told = [child.stdout.readline().decode().strip() for _ in range(outcomes)]
    child.kill()
    told += child.stdout.read().decode().splitlines()
    child.stdout.close()
    child.wait(timeout=30)
    return told


async def test_whatever_was_reported_survives_kill_nine(tmp_path: Path) -> None:
    """Killed at four moments, resumed each time: nothing that was reported is lost, nothing is done twice."""
    root = tmp_path / "run"
    told: list[str] = []
    for number, outcomes in enumerate((1, 13, 40, 77)):
        told += _killed_after(root, "resume" if number else "create", outcomes)
        run = Run.open(root)
        assert len(told) == len(set(told))
        assert set(told) <= {each.key.task for each in run.outcomes()}
        assert run.verify() == []
        for of, entry in run.index.entries.items():
            for attempt in range(1, entry.attempts + 1):
                found = run.attempt(of, attempt)
                assert len(found.messages()) <= 5
                assert [each.index for each in found.steps()] == list(range(len(found.steps())))
    assert sum(1 for _ in run.records(Opened)) == 4
    assert all(journal.decode(line) for line in (root / "journal.jsonl").read_bytes().splitlines()[:-1])
