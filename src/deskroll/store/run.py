"""RunStore: the coordinator's side of a run. Alone it writes run.json, the journal, the results and the summary.

Guarantees: one coordinator at a time (a lock on a local path, an epoch in an object store); a record that contradicts
what is known is refused before it is written; what `sync` has returned for is durable; when something cannot be
written, everybody is told, and what was durable before stays.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from deskroll import __version__
from deskroll.errors import StoreError, plain
from deskroll.store import info as run_info
from deskroll.store import journal, paths
from deskroll.store.attempt import AttemptReader
from deskroll.store.chain import Chain
from deskroll.store.index import GroupKey, Index, group_of
from deskroll.store.info import RunInfo
from deskroll.store.journal import Closed, CloseReason, GroupClosed, JournalRecord, Opened, Sealed
from deskroll.store.journal_bytes import check_unbegun, read_journal
from deskroll.store.local import LocalStorage
from deskroll.store.lock import Lock, this_process
from deskroll.store.pump import Pump
from deskroll.store.results import Describe, Result, ResultsFile, known_questions
from deskroll.store.sink import JournalFile, JournalSink
from deskroll.store.sink_objects import JournalObjects
from deskroll.store.spool import sweep
from deskroll.store.storage import Storage
from deskroll.types import Episode, EpisodeKey, GroupEnd, Task

WAIT_S = 20.0
"""How long a resume waits for those who still hold the run."""


class RunStore:
    """A run that is being written. Made by `create` or `resume`."""

    def __init__(
        self,
        storage: Storage,
        info: RunInfo,
        index: Index,
        epoch: int,
        pump: Pump,
        chain: Chain,
        *,
        lock: Lock | None,
        describe: Describe | None,
    ) -> None:
        self.storage = storage
        self.info = info
        self.index = index
        """What the journal says, with everything that was written here already in it, outcomes in brief."""
        self.epoch = epoch
        """To be put on every record that has one."""
        self.lock_fd = lock.fd if lock is not None else None
        """To be inherited by worker processes, which so hold the run as well; None in an object store."""
        self._lock = lock
        self._pump = pump
        self._chain = chain
        self._describe = describe or (lambda key: "")
        self._questions: dict[GroupKey, str] = {}
        """What is asked in each group that is open; in an object store, where lines come at the end, in all."""
        self._end: tuple[CloseReason, str] | None = None

    @classmethod
    @asynccontextmanager
    async def create(
        cls, root: str | Path, info: RunInfo, *, describe: Describe | None = None
    ) -> AsyncIterator[RunStore]:
        """Make a run in the folder `root`, which must not hold one yet."""
        storage = Storage.at(root)
        async with _held(storage, 0.0, make=True) as lock:
            if not await asyncio.to_thread(_write_info, storage, info):
                raise StoreError(f"{storage.shown()} holds a run already: resume it, or choose another folder")
            async with cls._opened(storage, info, lock, describe) as store:
                yield store

    @classmethod
    @asynccontextmanager
    async def resume(
        cls, root: str | Path, *, describe: Describe | None = None, wait_s: float = WAIT_S
    ) -> AsyncIterator[RunStore]:
        """Take up the run in the folder `root` where it was left."""
        storage = Storage.at(root)
        info = await asyncio.to_thread(run_info.read_info, storage)
        async with _held(storage, wait_s, make=False) as lock:
            await asyncio.to_thread(_check_journal, storage)
            async with cls._opened(storage, info, lock, describe) as store:
                yield store

    # --- while the run goes on ---

    def keep_questions(self, phase: str, round_: int, tasks: Iterable[Task]) -> None:
        """What results.jsonl says that was asked, until the group of each task is closed."""
        self._questions.update(((phase, round_, task.id), task.instruction) for task in tasks)

    def write(self, *records: JournalRecord) -> None:
        """Put records into the journal, soon; StoreError when one makes no sense, or nothing can be written."""
        for record in records:
            self._pump.check()
            line, result = journal.encode(record), b""
            if type(record) is Sealed:
                result = Result.of(record.episode, self._question(record.episode.key)).encode()
            self.index.apply_in_brief(record)
            self._pump.put(self._chain.link(line), result)
            if type(record) is GroupClosed and record.end is not GroupEnd.STOPPED and self.storage.local:
                self._questions.pop((record.phase, record.round, record.task), None)

    async def outcomes(self) -> list[Episode]:
        """The outcome of every episode that has one and is still planned, in full: read from the journal."""
        await self.sync()
        return await asyncio.to_thread(self._read_outcomes)

    async def sync(self) -> None:
        """Return when everything that was written so far is durable."""
        await self._pump.sync()

    @property
    def failed(self) -> asyncio.Future[StoreError]:
        """Done when something could not be written; nothing more can be, then."""
        return self._pump.failed

    @property
    def flushes(self) -> int:
        """How many batches of records were made durable so far."""
        return self._pump.batches

    def attempt(self, key: EpisodeKey, attempt: int) -> AttemptReader:
        """The folder of one attempt, to be read."""
        return AttemptReader(self.storage, paths.attempt_folder(key, attempt))

    async def next_attempt(self, key: EpisodeKey) -> int:
        """The number for another attempt: one whose folder is not there, whatever a killed coordinator left."""
        number = self.index.attempts(key) + 1
        while self.epoch > 1 and await self._folder_exists(key, number):
            number += 1
        return number

    def note(self, *, socket: str) -> None:
        """Write into the lock where this coordinator answers. Nothing in an object store."""
        if self._lock is not None:
            self._lock.note(this_process(socket))

    async def write_summary(self, data: bytes) -> None:
        """Write or replace summary.json."""
        await asyncio.to_thread(self.storage.write_atomic, paths.SUMMARY, data)

    def end_as(self, why: CloseReason, note: str = "") -> None:
        """Say why the run is left; else it is seen by what is unfinished and whether there was an error."""
        self._end = (why, note)

    # --- opening and closing ---

    @classmethod
    @asynccontextmanager
    async def _opened(
        cls, storage: Storage, info: RunInfo, lock: Lock | None, describe: Describe | None
    ) -> AsyncIterator[RunStore]:
        sink: JournalSink = JournalFile(storage) if isinstance(storage, LocalStorage) else JournalObjects(storage)
        results = ResultsFile(storage)
        try:
            if not storage.local:
                await asyncio.to_thread(sweep)
            data, free = await asyncio.to_thread(_open_files, sink, results)
            index = Index.load(data, storage.shown(paths.JOURNAL))
            pump = Pump(sink, results)
            store = cls(
                storage, info, index, max(free, index.epoch + 1), pump, Chain(data), lock=lock, describe=describe
            )
            async with _pumping(pump):
                await store._open()
                try:
                    yield store
                except BaseException as error:
                    try:
                        await store._close(error, sink)
                    except StoreError as second:
                        error.add_note(f"and the run could not be closed: {second}")
                    raise
                else:
                    await store._close(None, sink)
        finally:
            results.close()
            sink.close()

    async def _open(self) -> None:
        self.write(
            Opened(
                epoch=self.epoch,
                at=time.time(),
                host=socket.gethostname(),
                pid=os.getpid(),
                version=__version__,
                config_digest=self.info.config_digest,
            )
        )
        await self.sync()

    async def _close(self, error: BaseException | None, sink: JournalSink) -> None:
        if error is not None and self.failed.done():
            return  # that error is raised already, and nothing can be written
        why, note = self._end or self._reason(error)
        self.write(Closed(epoch=self.epoch, at=time.time(), why=why, note=note))
        await self.sync()
        await asyncio.to_thread(self._rewrite_results)
        await asyncio.to_thread(sink.finish)

    def _reason(self, error: BaseException | None) -> tuple[CloseReason, str]:
        if error is None:
            return (CloseReason.FINISHED if self.index.finished else CloseReason.STOPPED), ""
        if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
            return CloseReason.STOPPED, type(error).__name__
        return CloseReason.FAILED, plain(f"{type(error).__name__}: {error}")

    def _read_outcomes(self) -> list[Episode]:
        return Index.load(read_journal(self.storage), self.storage.shown(paths.JOURNAL)).outcomes()

    def _rewrite_results(self) -> None:
        known = known_questions(self.storage)
        lines = (
            Result.of(each, self._question(each.key) or known.get(group_of(each.key), "")).encode()
            for each in self._read_outcomes()
        )
        self.storage.write_atomic(paths.RESULTS, b"".join(lines))

    def _question(self, key: EpisodeKey) -> str:
        return self._questions.get(group_of(key)) or self._describe(key)

    async def _folder_exists(self, key: EpisodeKey, attempt: int) -> bool:
        folder = paths.attempt_folder(key, attempt)
        if isinstance(self.storage, LocalStorage):
            return self.storage.exists(folder)
        return bool(await asyncio.to_thread(self.storage.list, folder))


def _write_info(storage: Storage, info: RunInfo) -> bool:
    """Write run.json unless there is one; whether it was written."""
    data = run_info.encode(info)
    if not storage.local:
        return storage.write_new(paths.RUN_JSON, data)
    if storage.exists(paths.RUN_JSON):  # nobody else makes one meanwhile: we hold the lock
        return False
    storage.write_atomic(paths.RUN_JSON, data)
    return True


def _check_journal(storage: Storage) -> None:
    """Before anything is touched: StoreError where the journal was lost."""
    if not journal.whole(read_journal(storage)):
        check_unbegun(storage)


@asynccontextmanager
async def _held(storage: Storage, wait_s: float, *, make: bool) -> AsyncIterator[Lock | None]:
    """The lock of the run's folder, on a local path."""
    if not isinstance(storage, LocalStorage):
        yield None
        return
    if make:
        await asyncio.to_thread(storage.make_root)
    lock = await Lock.acquire(storage, wait_s)
    try:
        yield lock
    finally:
        lock.release()


@asynccontextmanager
async def _pumping(pump: Pump) -> AsyncIterator[None]:
    """The pump at work, until everything is written."""
    task = asyncio.create_task(pump.run(), name="deskroll-journal")
    try:
        yield
    finally:
        pump.stop()
        await _ended(task)


async def _ended(task: asyncio.Task[None]) -> None:
    """Wait for a task through any cancellation: nobody may close the files under it."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()


def _open_files(sink: JournalSink, results: ResultsFile) -> tuple[bytes, int]:
    results.open()
    return sink.open()
