import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deskroll.errors import StoreError
from deskroll.store import AttemptReader, AttemptWriter, Storage
from deskroll.store.local import LocalStorage
from deskroll.store.manifest import Tokens
from deskroll.types import Completion, Step, Task
from tests.store.records import JPEG, PNG, episode, key, step


def reader(storage: Storage, writer: AttemptWriter) -> AttemptReader:
    return AttemptReader(storage, writer.name)


async def test_a_sealed_attempt_holds_all_that_was_handed_over(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    messages = [b'{"role":"user","content":"caf\xc3\xa9"}', b'{"role":"assistant","n":[1, 2]}']
    steps = [step(0), step(1)]
    async with AttemptWriter(storage, key("a/b"), 1) as writer:
        for message in messages:
            writer.message(message)
        names = [writer.screen(image) for image in (PNG + b"1", PNG + b"2", PNG + b"1", JPEG)]
        for each in steps:
            writer.step(each)
        assert [writer.file("stack.txt", data) for data in (b"deep", b"deeper")] == ["stack.txt", "stack-2.txt"]
        await writer.seal(episode(key("a/b"), answer="42"))
    assert names == ["screens/0.png", "screens/1.png", "screens/0.png", "screens/2.jpg"]
    found = reader(storage, writer)
    assert found.sealed
    assert found.episode() == episode(key("a/b"), answer="42")
    assert found.messages() == messages
    assert found.steps() == steps
    assert found.image("screens/1.png") == PNG + b"2"
    assert (found.read("stack.txt"), found.read("stack-2.txt")) == (b"deep", b"deeper")
    assert found.verify() == []
    folder = tmp_path / "episodes/eval/0/a%2Fb/0/1"
    assert json.loads((folder / "conversation.json").read_bytes())[1] == {"role": "assistant", "n": [1, 2]}
    manifest = json.loads((folder / "episode.json").read_bytes())
    assert [file["name"] for file in manifest["files"]] == [name for name in found.files() if name != "episode.json"]
    assert manifest["answer"] == "42"


async def test_the_task_is_kept_once_and_listed(tmp_path: Path) -> None:
    storage, task = Storage.at(tmp_path), Task(id="ü/1", instruction="do", metadata={"deep": [{"er": None}]})
    async with AttemptWriter(storage, key(), 1) as writer:
        found = reader(storage, writer)
        assert found.task() is None
        writer.task(task)
        writer.task(task)
        assert found.task() == task, "also of an attempt that is never sealed"
        with pytest.raises(StoreError, match="cannot be the name"):
            writer.file("task.json", b"{}")
        await writer.seal(episode(key()))
    manifest = found.manifest()
    assert manifest is not None
    assert [file.name for file in manifest.files] == ["task.json"]
    assert (found.task(), found.verify()) == (task, [])
    (tmp_path / writer.name / "task.json").write_text("{")
    with pytest.raises(StoreError, match=r"task.json cannot be read"):
        found.task()


async def test_tokens_are_kept_apart_and_come_back_exactly(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    steps = [
        step(0, prompt_token_ids=(1, 2, 2**31 - 1), token_ids=(5,), logprobs=(-0.1234567890123456,)),
        step(1),
        step(2, token_ids=(), logprobs=()),
        step(3, prompt_token_ids=(7,), token_ids=(8, 9)),
        step(4, token_ids=(2**40,), logprobs=(-1.0,)),  # no array of ids can hold that
    ]
    async with AttemptWriter(storage, key(), 1) as writer:
        for each in steps:
            writer.step(each)
        await writer.seal(episode(key()))
    assert reader(storage, writer).steps() == steps
    lines = (tmp_path / writer.name / "steps.jsonl").read_text().splitlines()
    assert ["token_ids" in line for line in lines] == [False, False, False, False, True]
    assert reader(storage, writer).verify() == []


async def test_without_numpy_they_stay_in_the_steps(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
sys.modules["numpy"] = None  # as if it were not installed
from deskroll.store import AttemptWriter, Storage
from tests.store.records import episode, key, step
async def main():
    async with AttemptWriter(Storage.at({str(tmp_path)!r}), key(), 1) as writer:
        writer.step(step(0, token_ids=(1, 2)))
        await writer.seal(episode(key()))
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=Path(__file__).parents[2])
    found = AttemptReader(Storage.at(tmp_path), "episodes/eval/0/task/0/1")
    assert found.steps() == [step(0, token_ids=(1, 2))]
    assert "tokens.npz" not in found.files()


def test_a_step_without_tokens_needs_no_numpy() -> None:
    tokens = Tokens()
    bare = Step(index=0, completion=Completion(text="x"))
    assert tokens.take(bare) is bare
    assert len(tokens) == 0


async def test_a_folder_is_never_used_again(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    async with AttemptWriter(storage, key(), 1):
        pass
    with pytest.raises(StoreError, match=r"episodes/eval/0/task/0/1 is there already: .* next number"):
        AttemptWriter(storage, key(), 1)
    async with AttemptWriter(storage, key(), 2) as second:
        await second.seal(episode(key(), 2))
    assert reader(storage, second).messages() == []
    assert reader(storage, second).steps() == []


async def test_what_was_not_sealed_stays_as_evidence(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    async with AttemptWriter(storage, key(), 1) as writer:
        writer.message(b'{"a":1}')
        writer.message(b'{"b":"]["}')
        writer.step(step(0))
    found = reader(storage, writer)
    assert not found.sealed
    assert found.episode() is None
    assert found.messages() == [b'{"a":1}', b'{"b":"]["}']
    assert found.steps() == [step(0)]
    assert "not sealed" in found.verify()[0]
    for call in (lambda: writer.message(b"{}"), lambda: writer.step(step(1)), lambda: writer.screen(PNG)):
        with pytest.raises(StoreError, match="is closed"):
            call()
    with pytest.raises(StoreError, match="is closed"):
        await writer.seal(episode(key()))


@pytest.mark.parametrize("cut", range(1, 24))
async def test_a_torn_message_is_left_out(tmp_path: Path, cut: int) -> None:
    storage = Storage.at(tmp_path)
    messages = [b'{"a":"x"}', b'{"b":"\xc3\xa9"}']
    async with AttemptWriter(storage, key(), 1) as writer:
        for message in messages:
            writer.message(message)
    path = tmp_path / writer.name / "conversation.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    expected = [message for message in messages if whole[:cut].find(message) >= 0]
    assert reader(storage, writer).messages() == expected


async def test_a_torn_step_is_left_out(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    async with AttemptWriter(storage, key(), 1) as writer:
        writer.step(step(0))
        writer.step(step(1))
    path = tmp_path / writer.name / "steps.jsonl"
    path.write_bytes(path.read_bytes()[:-3])
    assert reader(storage, writer).steps() == [step(0)]


async def test_damage_is_seen(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    async with AttemptWriter(storage, key(), 1) as writer:
        writer.message(b"{}")
        writer.step(step(0))
        writer.screen(PNG)
        writer.file("more.txt", b"abc")
        await writer.seal(episode(key()))
    folder = tmp_path / writer.name
    (folder / "more.txt").write_bytes(b"abd")
    (folder / "screens/0.png").unlink()
    (folder / "conversation.json").write_bytes(b"[")
    problems = reader(storage, writer).verify()
    assert [problem.rpartition("/")[2] for problem in problems] == [
        "conversation.json: holds 1 bytes, not 7",
        "more.txt: its content has changed",
        "0.png: missing",
    ]
    with pytest.raises(StoreError, match=r"conversation.json cannot be read: .* damaged"):
        reader(storage, writer).messages()


async def test_a_file_that_another_program_writes_belongs_to_it(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    async with AttemptWriter(storage, key(), 1) as writer:
        writer.place("recording.mp4").write_bytes(b"film" * 1000)
        writer.place("never.mp4")
        await writer.seal(episode(key()))
    manifest = reader(storage, writer).manifest()
    assert manifest is not None
    assert [(file.name, file.size) for file in manifest.files] == [("recording.mp4", 4000)]
    assert reader(storage, writer).verify() == []


@pytest.mark.parametrize(
    "name", ["../x", "/x", "episode.json", "steps.jsonl", "a/b", ".hidden", "", "conversation.json"]
)
async def test_names_that_are_taken_or_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    async with AttemptWriter(Storage.at(tmp_path), key(), 1) as writer:
        with pytest.raises(StoreError):
            writer.file(name, b"")
        with pytest.raises(StoreError):
            writer.place(name)


async def test_the_record_of_another_episode_is_refused(tmp_path: Path) -> None:
    async with AttemptWriter(Storage.at(tmp_path), key(), 1) as writer:
        with pytest.raises(StoreError, match="does not belong here"):
            await writer.seal(episode(key("other")))


async def test_many_that_end_at_once_share_the_syncs(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    assert isinstance(storage, LocalStorage)

    async def one(number: int) -> None:
        async with AttemptWriter(storage, key(f"t{number}"), 1) as writer:
            writer.message(b"{}")
            await writer.seal(episode(key(f"t{number}")))

    await asyncio.gather(*(one(number) for number in range(40)))
    assert storage.commits.rounds <= 2
    for number in range(40):
        assert AttemptReader(storage, f"episodes/eval/0/t{number}/0/1").verify() == []
    assert not list(tmp_path.rglob("*.part"))


async def test_one_whose_folder_was_removed_harms_no_other(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    writers = [AttemptWriter(storage, key(f"t{number}"), 1) for number in range(12)]
    sealing = asyncio.gather(*(w.seal(episode(w.key)) for w in writers), return_exceptions=True)
    await asyncio.sleep(0)  # each has written its manifest, and waits to be made durable
    (tmp_path / writers[3].name).rename(tmp_path / "gone")
    results = await sealing
    assert [number for number, result in enumerate(results) if result is not None] in ([], [3])
    assert all(AttemptReader(storage, w.name).sealed for w in writers if w is not writers[3])


async def test_a_cancelled_seal_leaves_the_others_alone(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    writers = [AttemptWriter(storage, key(f"t{number}"), 1) for number in range(4)]
    tasks = [asyncio.create_task(w.seal(episode(w.key))) for w in writers]
    await asyncio.sleep(0)
    tasks[0].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1:] == [None, None, None]
    before = len(os.listdir("/proc/self/fd"))
    async with AttemptWriter(storage, key("t9"), 1) as another:
        await another.seal(episode(key("t9")))
    assert len(os.listdir("/proc/self/fd")) <= before


def test_where_no_thread_is_left_an_attempt_is_refused_and_does_not_wait_for_ever(tmp_path: Path) -> None:
    async def seal_too_late() -> None:
        async with AttemptWriter(Storage.at(tmp_path), key(), 1) as writer:
            writer.message(b"{}")
            await asyncio.get_running_loop().shutdown_default_executor()
            with pytest.raises(StoreError, match=r"cannot make attempts in .* durable"):
                await asyncio.wait_for(writer.seal(episode(key())), 30)

    asyncio.run(seal_too_late())
