"""BatchLedger: which batches a service has had, and in which round each is run. Kept in the run's folder, durably.

A batch is taken in this order: its tasks are written (`batches/<round>.json`), then the line that gives it its round
(`batches.jsonl`), then it is planned. Guarantees: whatever is killed in between, a batch that has a round is run to its
end by a later start, from the tasks as they were read, whatever became of its file; one that has none yet is found
again in its source; one that cannot go on any more is given up, for good, and is new when it comes again. None has two
rounds at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Self

import msgspec

from deskroll.errors import StoreError, plain
from deskroll.host.finishing import finish
from deskroll.report.words import counted
from deskroll.store import journal, paths
from deskroll.store.appended import AppendedFile
from deskroll.store.local import LocalStorage
from deskroll.tasks.batches import BadBatch, BatchName, TaskBatch, as_text
from deskroll.types import Record, Task

_MOST_BAD = 20
"""Bad batches that are kept in mind."""


class Taken(Record, frozen=True, tag_field="type", tag="taken"):
    """A batch got its round."""

    round: int
    id: str
    digest: str
    tasks: int
    at: float


class Finished(Record, frozen=True, tag_field="type", tag="finished"):
    """Every group of a batch was closed."""

    round: int
    at: float


class Refused(Record, frozen=True, tag_field="type", tag="bad"):
    """A batch is bad."""

    id: str
    digest: str
    error: str
    at: float


class Passed(Record, frozen=True, tag_field="type", tag="passed"):
    """A batch was passed over for a newer one."""

    id: str
    digest: str
    at: float


class GivenUp(Record, frozen=True, tag_field="type", tag="given_up"):
    """A batch that has a round cannot be run any more."""

    round: int
    error: str
    at: float


Line = Taken | Finished | Refused | Passed | GivenUp
_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


class BatchLedger:
    """Use with `with`."""

    def __init__(self, storage: LocalStorage) -> None:
        self.unfinished: dict[int, Taken] = {}
        """Batches that have a round and no end yet, in their order."""
        self.finished = 0
        self.bad: deque[Refused] = deque(maxlen=_MOST_BAD)
        """The last ones."""
        self.bad_count = 0
        self.passed = 0
        self.last: Taken | None = None
        self._storage = storage
        self._file = AppendedFile(storage, paths.BATCHES)
        self._writing = asyncio.Lock()
        self._known: set[tuple[str, str]] = set()
        """Id and digest of every batch that was taken or passed over; one that is bad, or was given up, may come again,
        when it was mended."""

    def __enter__(self) -> Self:
        shown = self._storage.shown(paths.BATCHES)
        self._read(self._file.open(f"{shown} is in use: another process serves this run"))
        return self

    @classmethod
    def read(cls, storage: LocalStorage) -> Self | None:
        """What it says, to be looked at and not written to; None where no service was in that folder."""
        if not storage.exists(paths.BATCHES):
            return None
        ledger = cls(storage)
        ledger._read(storage.read(paths.BATCHES))
        return ledger

    def _read(self, data: bytes) -> None:
        for line in journal.decode_lines(data, _decoder, self._storage.shown(paths.BATCHES)):
            self._fold(line)

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    @property
    def counts(self) -> str:
        """How many batches are done, bad and left, in words."""
        left = f", {len(self.unfinished)} for a restart to go on with" if self.unfinished else ""
        return f"{counted(self.finished, 'batch', 'batches')} done, {self.bad_count} bad{left}"

    @property
    def taken(self) -> int:
        """How many batches have a round."""
        return 0 if self.last is None else self.last.round + 1

    def knows(self, name: BatchName) -> bool:
        """Whether it was taken, or passed over, before."""
        return (name.id, name.digest) in self._known

    async def take(self, batch: TaskBatch) -> Taken:
        """Give a batch its round; returns when that is durable."""
        return await finish(self._take(batch))

    async def _take(self, batch: TaskBatch) -> Taken:
        now, tasks = time.time(), len(batch.tasks)
        taken = Taken(round=self.taken, id=batch.id, digest=batch.digest, tasks=tasks, at=now)
        passed = [Passed(id=each.id, digest=each.digest, at=now) for each in batch.passed]
        data = msgspec.json.encode(batch.tasks)
        await asyncio.to_thread(self._storage.write_atomic, paths.batch_file(taken.round), data)
        await self._write(*passed, taken)
        return taken

    async def refuse(self, bad: BadBatch) -> None:
        """Write down that a batch is bad."""
        await self._write(Refused(id=bad.id, digest=bad.digest, error=bad.error, at=time.time()))

    async def finish(self, round_: int) -> None:
        """Write down that a batch is through."""
        await self._write(Finished(round=round_, at=time.time()))

    async def give_up(self, taken: Taken, error: str) -> str:
        """Write down that a batch cannot go on; where its tasks are kept."""
        await self._write(GivenUp(round=taken.round, error=as_text(error), at=time.time()))
        return self._storage.path(paths.batch_file(taken.round))

    async def tasks(self, taken: Taken) -> tuple[Task, ...]:
        """The tasks of a batch, as they were read."""
        path = paths.batch_file(taken.round)
        try:
            data = await asyncio.to_thread(self._storage.read, path)
            return msgspec.json.decode(data, type=tuple[Task, ...])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            shown = self._storage.shown(path)
            raise StoreError(
                f"{shown}, the tasks of batch {taken.id!r}, cannot be read ({plain(str(error))}): restore it"
            ) from error

    async def _write(self, *lines: Line) -> None:
        await finish(self._append(lines))  # nobody may close the file under its writer

    async def _append(self, lines: Sequence[Line]) -> None:
        async with self._writing:
            await asyncio.to_thread(self._file.append, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
            for line in lines:
                self._fold(line)

    def _fold(self, line: Line) -> None:
        if isinstance(line, Finished):
            self.finished += self.unfinished.pop(line.round, None) is not None
            return
        if isinstance(line, GivenUp):
            taken = self.unfinished.pop(line.round)
            self._known.discard((taken.id, taken.digest))
            line = Refused(id=taken.id, digest=taken.digest, error=line.error, at=line.at)
        if isinstance(line, Refused):
            self.bad.append(line)
            self.bad_count += 1
            return
        self._known.add((line.id, line.digest))
        if isinstance(line, Taken):
            self.last = self.unfinished[line.round] = line
        else:
            self.passed += 1
