"""JournalWindow: the next closed groups of a journal that a consumer has not done, and no more of them than a window.

Methods block, and are called by one at a time. Guarantees: the journal is read from the consumer's place on, a part at
a time, while it is being written; where it was put right meanwhile it is read anew, and what was done is not found
again.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

import msgspec

from deskroll.errors import StoreError, plain
from deskroll.service.consumer import START, ConsumerFile, Place
from deskroll.service.follow import ClosedAt, GroupFold, Span
from deskroll.store import journal, paths
from deskroll.store.index import GroupKey
from deskroll.store.journal import Sealed
from deskroll.store.local import LocalStorage
from deskroll.types import Episode, GroupEnd, Record

WINDOW = 256
"""Closed groups that are known ahead of those that were handed out."""
_CHUNK = 1 << 18
_TAIL = 12
"""Bytes by which a place in the journal is known again: the end of a line's checksum."""


class ClosedGroup(Record, frozen=True):
    """What a consumer is told of a group."""

    phase: str
    round: int
    task: str
    """The task's id."""
    end: GroupEnd
    closed_at: float
    episodes: tuple[Episode, ...]
    """The outcome of each sample, in their order."""
    folders: tuple[str, ...]
    """Where the files of each of these attempts are; empty: its group gave it up before any was made."""


class JournalWindow:
    """`close` it in any case."""

    def __init__(self, storage: LocalStorage, consumer: ConsumerFile) -> None:
        self._storage = storage
        self._path = storage.path(paths.JOURNAL)
        self._consumer = consumer
        self._fd: int | None = None
        self._offset = 0
        self._fold = GroupFold()
        self._pending: dict[GroupKey, ClosedAt] = {}
        """Closed, neither done nor handed out, in the order in which they were closed."""
        self._handed: dict[GroupKey, int] = {}
        """Handed out and not done: where in the journal each begins."""

    @property
    def known(self) -> int:
        """How many closed groups it keeps in mind."""
        return len(self._pending)

    def close(self) -> None:
        """Let go of the journal."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def read_oldest(self, most: int) -> list[ClosedGroup]:
        """The oldest groups, at most so many; the journal is read until there is one, or no more of it."""
        self.forget([key for key in self._pending if key in self._consumer])
        while not self._pending and self._read_more():
            pass
        return [self._read_group(each) for each in itertools.islice(self._pending.values(), most)]

    def hand_out(self, group: ClosedGroup) -> None:
        """This one is not found again, unless it is forgotten."""
        key = (group.phase, group.round, group.task)
        self._handed[key] = self._pending.pop(key).first

    def forget(self, keys: Sequence[GroupKey]) -> None:
        """These are done."""
        for key in keys:
            self._pending.pop(key, None)
            self._handed.pop(key, None)

    def place(self, without: Sequence[GroupKey] = ()) -> Place:
        """Up to where the journal is done with, once these groups are."""
        if self._fd is None:
            return self._consumer.place
        firsts = [each.first for key, each in self._pending.items() if key not in without]
        firsts += [first for key, first in self._handed.items() if key not in without]
        of_open = self._fold.first
        position = min((*firsts, self._offset if of_open is None else of_open, self._offset))
        return Place(position=position, before=self._tail(position), epoch=self._fold.epoch_at(position))

    def _read_more(self) -> bool:
        """Take in a part of the journal; False: there is no more of it, or the window is full."""
        if len(self._pending) >= WINDOW or not self._is_longer():
            return False
        assert self._fd is not None  # noqa: S101  (it is open)
        size = _CHUNK
        while not (whole := journal.whole(data := os.pread(self._fd, size, self._offset))):
            if len(data) < size:
                return False  # a line that is being written
            size *= 2
        for line in data[:whole].split(b"\n")[:-1]:
            self._take(line)
            self._offset += len(line) + 1
            if len(self._pending) >= WINDOW:
                break
        return True

    def _take(self, line: bytes) -> None:
        try:
            found = self._fold.take(line, self._offset)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StoreError(
                f"{self._path}, byte {self._offset}: the line cannot be read ({plain(str(error))}); a restart of the "
                "service, or a resume, puts it right"
            ) from error
        if isinstance(found, ClosedAt):
            key = found.key
            if before := self._pending.get(key):  # it was closed once more, for another reason
                self._pending[key] = before._replace(end=found.end, at=found.at, members=before.members | found.members)
            elif key not in self._consumer and key not in self._handed:
                self._pending[key] = found
        elif found is not None and found.key in self._pending:
            self._fold.put_back(self._pending.pop(found.key), found.sample)

    def _is_longer(self) -> bool:
        """Whether there is more of the journal, as it is now, than was read."""
        try:
            stat = os.stat(self._path, follow_symlinks=False)  # noqa: PTH116
            if self._fd is not None and (stat.st_ino != os.fstat(self._fd).st_ino or stat.st_size < self._offset):
                self.close()  # it was put right, and is another file
            if self._fd is None:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                self._begin(self._consumer.place)
        except FileNotFoundError:  # nothing is written yet
            return False
        except OSError as error:
            raise StoreError(f"cannot read {self._path}: {error.strerror}") from error
        return stat.st_size > self._offset

    def _begin(self, place: Place) -> None:
        """Begin at a place, if that is still what it was; else at the beginning."""
        self._pending = {}
        begin = place if self._tail(place.position) == place.before else START
        self._fold = GroupFold(begin.epoch)
        self._offset = begin.position
        self._handed = dict.fromkeys(self._handed, self._offset)

    def _tail(self, position: int) -> str:
        assert self._fd is not None  # noqa: S101
        start = max(0, position - _TAIL)
        return os.pread(self._fd, position - start, start).decode("latin-1")

    def _read_group(self, closed: ClosedAt) -> ClosedGroup:
        episodes = tuple(map(self._read_episode, closed.members.values()))
        folders = tuple(map(self._folder, episodes))
        phase, round_, task = closed.key
        return ClosedGroup(
            phase=phase, round=round_, task=task, end=closed.end, closed_at=closed.at, episodes=episodes,
            folders=folders,
        )  # fmt: skip

    def _folder(self, episode: Episode) -> str:
        folder = paths.attempt_folder(episode.key, episode.attempt)
        return self._storage.path(folder) if episode.attempt else ""

    def _read_episode(self, span: Span) -> Episode:
        assert self._fd is not None  # noqa: S101
        record = journal.decode(os.pread(self._fd, span.length, span.start))
        assert isinstance(record, Sealed)  # noqa: S101  (it is the line that the span was read from)
        return record.episode
