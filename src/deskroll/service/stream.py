"""GroupStream: the closed groups of a run, as they come, each exactly once for a consumer that says when it is done.

    async with GroupStream("results/service", "trainer") as stream:
        async for group in stream:
            ...                          # group.task, group.end, group.episodes, group.folders
            await group.done()

It follows the journal of the run, live or over, by itself: no service has to answer. Guarantees: what was handed out
and not done comes again after a crash of either side; what was done never does, whatever a resume does with the group
afterwards. Groups that were stopped are not handed out. A consumer that is slow costs disk and no memory: no more of
the journal is read than a window of groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Self

from deskroll.errors import InputError
from deskroll.host.finishing import finish
from deskroll.host.folder_watch import FolderWatch
from deskroll.service.consumer import ConsumerFile
from deskroll.service.window import ClosedGroup, JournalWindow
from deskroll.store import AttemptReader, Run, Storage, find_run, paths
from deskroll.store.index import GroupKey
from deskroll.store.local import LocalStorage
from deskroll.types import EpisodeKey

_LOOK_S = 1.0
"""How often the journal is looked at where its folder tells of no change."""
_PLACE_EVERY = 64
"""After so many groups it is noted how far the journal is done with."""


class StreamedGroup:
    """A group that was handed out."""

    def __init__(self, record: ClosedGroup, stream: GroupStream) -> None:
        self.record = record
        self.phase, self.round, self.task = record.phase, record.round, record.task
        self.end, self.closed_at = record.end, record.closed_at
        self.episodes, self.folders = record.episodes, record.folders
        self._stream = stream

    def __repr__(self) -> str:
        return f"<group {self.phase}/{self.round}/{self.task}: {self.end}, {len(self.episodes)} episodes>"

    async def done(self) -> None:
        """It is done with: returns when that is durable, and the group never comes again."""
        await self._stream.mark_done([(self.phase, self.round, self.task)])


class GroupStream:
    """Use with `async with`, or iterate over it and `close` it."""

    def __init__(self, run: str | Path | Run, consumer: str, *, follow: bool = True) -> None:
        """`run` is the folder of a run; without `follow`, it ends with what is closed by now."""
        storage = run.storage if isinstance(run, Run) else Storage.at(find_run(run))
        if not isinstance(storage, LocalStorage):
            raise InputError(f"{storage.shown()} is in an object store; consumers need a run on a local path")
        self.consumer = consumer
        self._follow = follow
        self._storage = storage
        self._file = ConsumerFile(storage, consumer)
        self._watch = FolderWatch(storage.root, lambda name: name == paths.JOURNAL)
        self._opened = self._closed = False
        self._journal = JournalWindow(storage, self._file)
        self._reading = asyncio.Lock()
        """Whoever reads the journal does so in a thread: what it knows of is nobody else's meanwhile."""
        self._since_place = 0

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[StreamedGroup]:
        while (group := await self.next(None if self._follow else 0.0)) is not None:
            yield group

    @property
    def done_count(self) -> int:
        """How many groups were done, in all."""
        return len(self._file)

    def attempt(self, key: EpisodeKey, attempt: int) -> AttemptReader:
        """The folder of one attempt, to be read; so `group_samples(group.episodes, stream)` has what it needs."""
        return AttemptReader(self._storage, paths.attempt_folder(key, attempt))

    async def open(self) -> None:
        """Take the consumer's name; InputError where another process has it."""
        self._refuse_closed()
        if not self._opened:
            await finish(self._open())

    async def close(self) -> None:
        """Let go of the name; what was handed out and not done comes again."""
        self._closed = True
        self._watch.wake()  # whoever waits hears of it
        await finish(self._close())

    def _refuse_closed(self) -> None:
        if self._closed:
            raise InputError(f"the stream of consumer {self.consumer!r} is closed: make another one")

    async def _open(self) -> None:
        async with self._reading:
            self._refuse_closed()
            if not self._opened:
                await asyncio.to_thread(self._file.open)
                await self._watch.__aenter__()
                self._opened = True

    async def _close(self) -> None:
        async with self._reading:
            if not self._opened:
                return
            self._opened = False
            try:
                if self._since_place:
                    await self._file.add([], self._journal.place())
            finally:
                self._file.close()
                self._journal.close()
                await self._watch.__aexit__(None, None, None)

    async def next(self, wait: float | None = None) -> StreamedGroup | None:
        """The next group that this stream has not handed out yet; None where none was closed in so many seconds."""
        found = await self._found(1, wait)
        if not found:
            return None
        self._journal.hand_out(found[0])
        return StreamedGroup(found[0], self)

    async def oldest(self, most: int, wait: float) -> list[ClosedGroup]:
        """The oldest groups that are neither done nor handed out; waits so long where there is none."""
        return await self._found(most, wait)

    async def mark_done(self, keys: Sequence[GroupKey]) -> None:
        """These groups are done; returns when that is durable."""
        await self.open()
        async with self._reading:
            self._refuse_closed()
            self._since_place += len(keys)
            place = self._journal.place(without=keys) if self._since_place >= _PLACE_EVERY else None
            self._since_place = 0 if place else self._since_place
        await self._file.add(keys, place)
        async with self._reading:
            self._journal.forget(keys)

    async def _found(self, most: int, wait: float | None) -> list[ClosedGroup]:
        """The oldest groups that are neither done nor handed out, as soon as there is one."""
        await self.open()
        loop = asyncio.get_running_loop()
        until = None if wait is None else loop.time() + wait
        while True:
            async with self._reading:
                self._refuse_closed()
                # In a thread, to its end also where whoever waits is cancelled: nobody else may read meanwhile.
                if found := await finish(asyncio.to_thread(self._journal.read_oldest, most)):
                    return found
            left = _LOOK_S if until is None else min(_LOOK_S, until - loop.time())
            if left <= 0:
                return []
            await self._watch.wait(left)
