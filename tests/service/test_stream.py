"""Closed groups, each exactly once for a consumer, whatever ends it or the service."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deskroll.errors import InputError, StoreError
from deskroll.service.consumer import ConsumerFile
from deskroll.service.stream import GroupStream, StreamedGroup
from deskroll.service.window import WINDOW, JournalWindow
from deskroll.store.local import LocalStorage
from deskroll.types import GroupEnd
from tests.service.journals import WrittenJournal
from tests.waiting import eventually


@pytest.fixture
def written(tmp_path: Path) -> WrittenJournal:
    return WrittenJournal(tmp_path / "run")


async def read(stream: GroupStream) -> list[StreamedGroup]:
    """What is there and was not handed out yet."""
    return [group async for group in stream]


def is_open(path: Path) -> bool:
    """Whether this process has it open."""
    return str(path) in {os.path.realpath(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd")}


def stream_of(written: WrittenJournal, consumer: str = "trainer") -> GroupStream:
    return GroupStream(written.folder, consumer, follow=False)


async def test_each_group_comes_once_with_its_outcomes(written: WrittenJournal) -> None:
    for sample in (1, 0):
        written.seal("a", sample, attempt=sample + 2)
    written.finish("b")
    written.close("a", GroupEnd.NO_SIGNAL)
    async with stream_of(written) as stream:
        b, a = await read(stream)
        assert (a.task, a.round, a.end, a.closed_at) == ("a", 0, GroupEnd.NO_SIGNAL, 1.0)
        assert [(each.key.sample, each.attempt) for each in a.episodes] == [(0, 2), (1, 3)]
        assert a.folders[1] == str(written.folder / "episodes/service/0/a/1/3")
        assert stream.attempt(a.episodes[0].key, 2).folder == "episodes/service/0/a/0/2"
        assert b.task == "b"
        assert await read(stream) == []


async def test_what_was_not_done_comes_again_and_nothing_else(written: WrittenJournal) -> None:
    written.finish("a", "b", "c")
    stream = stream_of(written)
    a, b, c = await read(stream)
    await c.done()
    await a.done()
    await stream.close()
    async with stream_of(written) as again:
        assert [each.task for each in await read(again)] == ["b"]
    async with stream_of(written, "another") as other:
        assert len(await read(other)) == 3
    assert b.task == "b"


async def test_a_consumer_has_its_name_for_itself(written: WrittenJournal) -> None:
    async with stream_of(written):
        with pytest.raises(InputError, match="consumer 'trainer' is in use by another process"):
            await stream_of(written).open()
    async with stream_of(written):
        pass


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 65, "a b"])
def test_a_name_leads_nowhere(written: WrittenJournal, name: str) -> None:
    with pytest.raises(InputError, match="a name has letters"):
        stream_of(written, name)


async def test_stopped_groups_and_records_of_superseded_coordinators_do_not_count(written: WrittenJournal) -> None:
    written.seal("a", 0)
    written.close("a", GroupEnd.STOPPED)
    written.close("old", None, why="stopped")
    written.open()
    written.seal("a", 1, epoch=1)
    written.seal("a", 1, attempt=2)
    async with stream_of(written) as stream:
        assert await read(stream) == []
        written.close("a")
        (a,) = await read(stream)
        assert [each.attempt for each in a.episodes] == [1, 2]


async def test_records_of_superseded_coordinators_do_not_count_behind_a_place_either(written: WrittenJournal) -> None:
    written.seal("open")
    written.open()
    written.finish("a")
    async with stream_of(written) as stream:
        (a,) = await read(stream)
        await a.done()
    written.close("open")
    async with stream_of(written) as stream:
        (group,) = await read(stream)
        assert len(group.episodes) == 1, "it is of the time before the second start"
        await group.done()
    written.seal("b", 0, epoch=1)
    written.seal("b", 1)
    written.close("b")
    async with stream_of(written) as stream:
        (b,) = await read(stream)
        assert [each.key.sample for each in b.episodes] == [1]


async def test_a_group_that_is_withheld_is_told_as_such(written: WrittenJournal) -> None:
    written.finish("a")
    async with stream_of(written) as stream:
        written.close("a", GroupEnd.WITHHELD)
        (a,) = await read(stream)
        assert (a.end, len(a.episodes)) == (GroupEnd.WITHHELD, 1)


async def test_a_name_is_free_after_an_open_that_was_cancelled(written: WrittenJournal) -> None:
    file, line = (
        written.folder / "consumers/trainer.jsonl",
        b'{"type":"done","phase":"p","round":%d,"task":"t","at":1.0}',
    )
    file.parent.mkdir()
    file.write_bytes(b"".join(line % number + b"\n" for number in range(20_000)))  # so that it takes a while
    stream = stream_of(written)
    opening = asyncio.ensure_future(stream.open())
    while not opening.done() and not is_open(file):
        await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait((opening,))
    await stream.close()
    assert not is_open(file)
    async with stream_of(written):
        pass


async def test_the_first_to_ask_may_be_several(written: WrittenJournal) -> None:
    written.finish("a", "b", "c")
    stream = stream_of(written)
    found = await asyncio.gather(*(stream.next(0.0) for _ in range(3)))
    assert sorted(each.task for each in found if each) == ["a", "b", "c"]
    await stream.close()


async def test_whoever_waits_hears_that_a_stream_is_closed(written: WrittenJournal) -> None:
    stream = GroupStream(written.folder, "trainer")
    waiting = asyncio.ensure_future(stream.next())
    assert await stream.next(0.0) is None
    await stream.close()
    with pytest.raises(InputError, match="is closed"):
        await asyncio.wait_for(waiting, 60)
    assert not is_open(written.path)


async def test_a_group_that_is_closed_again_comes_as_it_is_then_and_not_after_it_was_done(
    written: WrittenJournal,
) -> None:
    written.finish("slow", "done")
    async with stream_of(written, "fast") as stream:
        for group in await read(stream):
            await group.done()
    written.open()
    for name in ("slow", "done"):
        written.reopen(name)
        written.seal(name, attempt=2)
        written.close(name)
    async with stream_of(written, "fast") as stream:
        assert await read(stream) == []
    async with stream_of(written, "slow") as stream:
        assert [each.episodes[0].attempt for each in await read(stream)] == [2, 2]


async def test_a_line_that_is_being_written_is_waited_for(written: WrittenJournal) -> None:
    written.finish("a")
    whole = written.path.read_bytes()
    written.path.write_bytes(whole[:-9])
    async with GroupStream(written.folder, "trainer") as stream:
        assert await stream.next(0.0) is None
        coming = asyncio.ensure_future(stream.next())
        with written.path.open("ab") as file:
            file.write(whole[-9:])
        group = await asyncio.wait_for(coming, 60)
        assert group is not None
        assert group.task == "a"


async def test_whoever_gives_up_waiting_loses_nothing(written: WrittenJournal) -> None:
    async with GroupStream(written.folder, "trainer") as stream:
        waiting = asyncio.ensure_future(stream.next())
        await asyncio.sleep(0)
        written.finish("a")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

        async def found() -> StreamedGroup | None:
            return await stream.next(0.0)

        assert waiting.cancelled()
        assert (await eventually(found, "it is there")).task == "a"  # type: ignore[union-attr]


async def test_a_slow_consumer_keeps_no_more_than_a_window_in_mind(written: WrittenJournal) -> None:
    tasks = [f"t{number}" for number in range(4 * WINDOW)]
    written.finish(*tasks)
    file = ConsumerFile(LocalStorage(written.folder), "slow")
    file.open()
    window = JournalWindow(LocalStorage(written.folder), file)
    for count in range(len(tasks)):
        (group,) = window.read_oldest(1)
        assert (group.task, window.known <= WINDOW) == (tasks[count], True)
        window.hand_out(group)
    assert window.read_oldest(1) == []
    window.close()
    file.close()


async def test_the_journal_is_not_read_from_its_beginning_again(written: WrittenJournal) -> None:
    written.seal("open")
    written.finish(*(f"t{number}" for number in range(200)))
    async with stream_of(written) as stream:
        for group in await read(stream):
            await group.done()
    state = [json.loads(line) for line in (written.folder / "consumers/trainer.jsonl").read_bytes().splitlines()]
    first = written.path.read_bytes().index(b'"task":"t0"')
    assert 0 < state[-1]["position"] < first, "the group that is open begins there"
    written.close("open")
    async with stream_of(written) as stream:
        (group,) = await read(stream)
        assert (group.task, len(group.episodes)) == ("open", 1)
        await group.done()
    state = [json.loads(line) for line in (written.folder / "consumers/trainer.jsonl").read_bytes().splitlines()]
    assert state[-1]["position"] == written.path.stat().st_size


async def test_a_journal_that_was_put_right_is_read_anew(written: WrittenJournal) -> None:
    written.finish("a", "b")
    async with stream_of(written) as stream:
        for group in await read(stream):
            await group.done()
        other = WrittenJournal(written.folder.with_name("other"))
        other.finish("before", "a", "b", "c")
        os.replace(other.path, written.path)
        assert [group.task for group in await read(stream)] == ["before", "c"]
    async with stream_of(written) as stream:
        assert [group.task for group in await read(stream)] == ["before", "c"]


async def test_a_damaged_line_is_told(written: WrittenJournal) -> None:
    with written.path.open("ab") as file:
        file.write(b'{"type":"group_closed","phase":7}\n')
    async with stream_of(written) as stream:
        with pytest.raises(StoreError, match=r"journal\.jsonl, byte \d+: the line cannot be read"):
            await read(stream)


async def test_a_torn_line_of_a_consumer_is_cut_off(written: WrittenJournal) -> None:
    written.finish("a", "b")
    async with stream_of(written) as stream:
        a, _ = await read(stream)
        await a.done()
    with (written.folder / "consumers/trainer.jsonl").open("ab") as file:
        file.write(b'{"type":"done","phase":"service","round":0,"task":"b"')
    async with stream_of(written) as stream:
        (b,) = await read(stream)
        await b.done()
    async with stream_of(written) as stream:
        assert (stream.done_count, await read(stream)) == (2, [])


async def test_a_write_that_fails_is_told_and_the_next_one_is_written(written: WrittenJournal) -> None:
    written.finish("a", "b", "c")
    async with stream_of(written) as stream:
        groups = await read(stream)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
            told = await asyncio.gather(*(each.done() for each in groups[:2]), return_exceptions=True)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert [type(each) for each in told] == [StoreError, StoreError], "who shares a write hears of it"
        for group in groups[1:]:
            await group.done()
    async with stream_of(written) as stream:
        assert [each.task for each in await read(stream)] == ["a"]


async def test_many_are_done_at_the_same_time(written: WrittenJournal) -> None:
    written.finish(*(f"t{number}" for number in range(300)))
    async with stream_of(written) as stream:
        await asyncio.gather(*(group.done() for group in await read(stream)))
        assert stream.done_count == 300
    async with stream_of(written) as stream:
        assert await read(stream) == []


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["seal", "close", "stop", "reopen", "start", "read", "read", "done", "crash"]),
        st.integers(0, 3),
        st.integers(0, 1),
    ),
    max_size=60,
)


class Expected:
    """What a consumer may be given, worked out from what was written."""

    def __init__(self) -> None:
        self.sealed: dict[tuple[str, int], int] = {}
        self.attempts: dict[tuple[str, int], int] = {}
        self.closed: set[str] = set()
        self.done: set[str] = set()

    def members(self, task: str) -> list[tuple[int, int]]:
        return sorted((sample, attempt) for (name, sample), attempt in self.sealed.items() if name == task)


@settings(max_examples=80)
@given(OPERATIONS)
def test_exactly_once_whatever_happens(operations: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(carry_out(WrittenJournal(Path(folder, "run")), operations))


async def carry_out(written: WrittenJournal, operations: list[tuple[str, int, int]]) -> None:
    expected, stream = Expected(), stream_of(written)
    handed: dict[str, StreamedGroup] = {}
    for what, number, sample in [*operations, ("crash", 0, 0), ("read", 0, 0)]:
        task, member = f"t{number}", (f"t{number}", sample)
        if what == "seal" and member not in expected.sealed and task not in expected.closed:
            expected.sealed[member] = expected.attempts[member] = expected.attempts.get(member, 0) + 1
            written.seal(task, sample, expected.sealed[member])
        elif what == "close" and expected.members(task):
            written.close(task)
            expected.closed.add(task)
        elif what == "stop" and task not in expected.closed:
            written.close(task, GroupEnd.STOPPED)
        elif what == "reopen" and member in expected.sealed:
            written.reopen(task, sample)
            del expected.sealed[member]
            expected.closed.discard(task)
        elif what == "start":
            written.open()
        elif what == "done" and task in handed:
            await handed.pop(task).done()
            expected.done.add(task)
        elif what == "crash":
            await stream.close()
            stream, handed = stream_of(written), {}
        elif what == "read":
            found = await read(stream)
            names = [each.task for each in found]
            assert len(set(names)) == len(names)
            assert not {*names} & {*handed} | {*names} & expected.done
            assert {*names} >= expected.closed - {*handed} - expected.done
            assert {*names} <= expected.closed
            for group in found:
                assert [(each.key.sample, each.attempt) for each in group.episodes] == expected.members(group.task)
            handed |= {each.task: each for each in found}
    await stream.close()
