"""ConsumerFile: which groups a consumer has done, and from where on in the journal it has to look. One file a name.

Guarantees: what `add` has returned for is durable, and known to whoever opens the file next; one process at a time has
it. In memory there is a number, some tens of bytes, for each group that was done.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from deskroll.errors import InputError, StoreError, plain
from deskroll.host.finishing import finish
from deskroll.store import journal, paths
from deskroll.store.appended import AppendedFile
from deskroll.store.index import GroupKey
from deskroll.store.local import LocalStorage
from deskroll.types import Record

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Done(Record, frozen=True, tag_field="type", tag="done"):
    """A group is done."""

    phase: str
    round: int
    task: str
    at: float


class Place(Record, frozen=True, tag_field="type", tag="place"):
    """Everything before this place of the journal is done with."""

    position: int
    """In bytes; a line begins there."""
    before: str
    """The last bytes before it: where the journal has others, it was put right meanwhile, and is read anew."""
    epoch: int = 0
    """Of the coordinator that had the run there: records of earlier ones do not count any more."""


START = Place(position=0, before="")
_decoder: msgspec.json.Decoder[Done | Place] = msgspec.json.Decoder(Done | Place)


def check_consumer(name: str) -> str:
    """The name of a consumer; it is the name of a file, too."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"consumer is {plain(name)!r}; a name has letters, digits, '.', '_' and '-', begins with a letter or a "
            "digit, and has at most 64 of them"
        )
    return name


@dataclass
class _Write:
    """What is written together."""

    lines: list[Done | Place] = field(default_factory=list)
    error: StoreError | None = None
    """Why it was not written."""


class ConsumerFile:
    """Call `open` first, `close` in any case."""

    def __init__(self, storage: LocalStorage, name: str) -> None:
        self.name = check_consumer(name)
        self.place = START
        """As it was noted last."""
        self._storage = storage
        self._path = paths.consumer_file(name)
        self._file = AppendedFile(storage, self._path)
        self._done: set[int] = set()
        self._next = _Write()
        self._writing = asyncio.Lock()

    def __contains__(self, key: GroupKey) -> bool:
        return _mark(key) in self._done

    def __len__(self) -> int:
        return len(self._done)

    def open(self) -> None:
        """Read what was done before; blocks."""
        data = self._file.open(
            f"consumer {self.name!r} is in use by another process (or over HTTP by the service): each group is handed "
            "out once for a name, so end that one, or choose another name"
        )
        for line in journal.decode_lines(data, _decoder, self._storage.shown(self._path)):
            self._fold(line)

    def close(self) -> None:
        """Let go of it."""
        self._file.close()

    async def add(self, keys: Sequence[GroupKey], place: Place | None = None) -> None:
        """These groups are done; returns when that is durable. Groups that are done at the same time share a write."""
        now = round(time.time(), 3)
        write = self._next
        write.lines += [
            Done(phase=key[0], round=key[1], task=key[2], at=now) for key in dict.fromkeys(keys) if key not in self
        ]
        if place is not None:
            write.lines.append(place)
        await finish(self._flush(write))  # nobody may close the file under its writer

    async def _flush(self, write: _Write) -> None:
        async with self._writing:
            if self._next is write:
                self._next = _Write()
                await self._carry_out(write)
        if write.error is not None:  # those that share the write have to know, too
            raise StoreError(str(write.error))

    async def _carry_out(self, write: _Write) -> None:
        if write.lines:
            data = b"".join(msgspec.json.encode(line) + b"\n" for line in write.lines)
            try:
                await asyncio.to_thread(self._file.append, data)
            except StoreError as error:
                write.error = error
                return
        for line in write.lines:
            self._fold(line)

    def _fold(self, line: Done | Place) -> None:
        if isinstance(line, Place):
            self.place = line
        else:
            self._done.add(_mark((line.phase, line.round, line.task)))


def _mark(key: GroupKey) -> int:
    return int.from_bytes(hashlib.blake2b(msgspec.json.encode(key), digest_size=8).digest())
