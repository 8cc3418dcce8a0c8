"""FolderSource: a folder in which each .json or .jsonl file is a batch, the oldest first.

Guarantees: a file is read once it has not changed for `rest_ms`, and as one piece: the digest is that of the tasks. Its
name is its batch's id (what of it is no UTF-8 is written out). Links are not followed, and what is no regular file is
bad. A bad one goes to `bad/` in the same folder, with what is wrong beside it; nothing else in the folder is touched,
and nothing is overwritten.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from deskroll.errors import InputError
from deskroll.host.below import LeadsOut, read_below
from deskroll.tasks.batches import (
    BAD,
    SUFFIXES,
    BadBatch,
    BatchName,
    Knows,
    Source,
    SourceError,
    SourceSettings,
    TaskBatch,
    as_text,
    bad_batch,
    check_size,
    digest_of,
    most_bytes,
)
from deskroll.tasks.load import parse_tasks
from deskroll.tasks.reading import is_file, is_folder, text_of

UNREADABLE = "unreadable"
"""The digest of what nobody can read."""
_FOR_GOOD = (errno.EINVAL, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ENXIO)
"""Errors that are the file's own: it is none, or not for us. All others may pass."""
Signature = tuple[int, int, int]
"""What changes when a file does: inode, size, time of the last change."""


class _Look(NamedTuple):
    signature: Signature
    since: float
    """Since when it has looked so."""


class FolderSource(Source):
    """See `Source`."""

    def __init__(self, settings: SourceSettings) -> None:
        self.folder: Path | None = Path(settings.at).absolute()
        self._folder = self.folder
        self._settings = settings
        self._root = Path(settings.root).absolute() if settings.root else None
        self._rest_s = settings.rest_ms / 1000
        self._looks: dict[str, _Look] = {}
        self._dealt: dict[str, Signature] = {}
        """Files that are there and were dealt with, as they were then."""
        self._names: dict[str, str] = {}
        """The name of each file that was read, by the id of its batch."""
        self._queue: deque[str] = deque()
        self._unsettled: float | None = None
        if is_file(self._folder):
            raise InputError(
                f"source: {self._folder} is a file, and its name does not end in .json or .jsonl; rename it, or name a "
                "folder of such files"
            )
        if not is_folder(self._folder):
            raise InputError(f"source: there is no folder {self._folder}; make it, or name another one")

    def concerns(self, name: str) -> bool:
        """See `Source`."""
        return _is_batch(name)

    @property
    def waiting(self) -> int:
        """See `Source`."""
        return len(self._queue)

    @property
    def unsettled_s(self) -> float | None:
        """See `Source`."""
        return self._unsettled

    async def poll(self, knows: Knows) -> TaskBatch | BadBatch | None:
        """See `Source`."""
        return await asyncio.to_thread(self._poll, knows)

    async def set_aside(self, bad: BadBatch) -> str:
        """See `Source`."""
        return await asyncio.to_thread(self._move, bad)

    def _poll(self, knows: Knows) -> TaskBatch | BadBatch | None:
        if not self._queue or self._settings.newest_only:
            self._queue = deque(self._scan())
        batches = self._read_queue(knows)
        if not self._settings.newest_only:
            return next(batches, None)
        found = list[TaskBatch | BadBatch]()
        try:
            found += batches
        except SourceError:
            self._look_again_at(found)
            raise
        good = [each for each in found if isinstance(each, TaskBatch)]
        bad = [each for each in found if isinstance(each, BadBatch)]
        if bad:  # told one by one: the good ones are found again afterwards
            self._look_again_at((*good, *bad[1:]))
            return bad[0]
        if not good:
            return None
        passed = tuple(BatchName(id=each.id, digest=each.digest) for each in good[:-1])
        return TaskBatch(id=good[-1].id, digest=good[-1].digest, tasks=good[-1].tasks, passed=passed)

    def _look_again_at(self, batches: Iterable[BatchName]) -> None:
        for each in batches:
            self._dealt.pop(self._names[each.id], None)

    def _read_queue(self, knows: Knows) -> Iterator[TaskBatch | BadBatch]:
        while self._queue:
            if (batch := self._read(self._queue.popleft(), knows)) is not None:
                yield batch

    def _scan(self) -> list[str]:
        """Names of files that are at rest and were not dealt with as they are now, the oldest first."""
        now, looks, dealt, ready = time.monotonic(), dict[str, _Look](), dict[str, Signature](), list[tuple[int, str]]()
        self._unsettled = None
        for name, signature in self._files():
            if self._dealt.get(name) == signature:
                dealt[name] = signature
                continue
            look = self._looks.get(name)
            if look is None or look.signature != signature:
                look = _Look(signature, now)
            looks[name] = look
            if (left := look.since + self._rest_s - now) <= 0:
                ready.append((signature[2], name))
            else:
                self._unsettled = min(left, self._unsettled or left)
        self._looks, self._dealt, self._names = looks, dealt, {as_text(name): name for name in looks}
        return [name for _, name in sorted(ready)]

    def _files(self) -> Iterator[tuple[str, Signature]]:
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if not _is_batch(entry.name):
                        continue
                    try:
                        if not entry.is_dir(follow_symlinks=False):
                            yield entry.name, _signature(entry.stat(follow_symlinks=False))
                    except FileNotFoundError:  # gone meanwhile
                        continue
        except OSError as error:
            raise SourceError(f"source: {self._folder} cannot be read: {error.strerror}") from error

    def _read(self, name: str, knows: Knows) -> TaskBatch | BadBatch | None:
        """One file as a batch; None where it is known, gone, or is being written again."""
        known_as, shown = as_text(name), self._folder / as_text(name)
        signature = self._looks[name].signature
        try:
            data = read_below(self._folder, name, most=most_bytes(self._settings) + 1)
            if _signature((self._folder / name).lstat()) != signature:
                return None  # it shows at the next look
        except FileNotFoundError:
            return None
        except OSError as error:
            why = f"{shown}: it cannot be read: {error.strerror or error}"
            if not isinstance(error, LeadsOut) and error.errno not in _FOR_GOOD:
                raise SourceError(as_text(f"source: {why}")) from error
            self._dealt[name] = signature
            return bad_batch(BatchName(id=known_as, digest=UNREADABLE), why)
        self._dealt[name] = signature
        batch = BatchName(id=known_as, digest=digest_of(data))
        return None if knows(batch) else self._batch(batch, data, shown)

    def _batch(self, name: BatchName, data: bytes, path: Path) -> TaskBatch | BadBatch:
        try:
            check_size(data, self._settings, str(path))
            tasks = parse_tasks(text_of(data, str(path)), path, root=self._root)
        except (InputError, UnicodeEncodeError) as error:
            return bad_batch(name, error)
        return TaskBatch(id=name.id, digest=name.digest, tasks=tuple(tasks))

    def _move(self, bad: BadBatch) -> str:
        """Move a file to `bad/`, if it still is the one that is bad."""
        path = self._folder / self._names.get(bad.id, bad.id)
        if not self._is_still(path.name, bad.digest):
            return ""
        folder = self._folder / BAD
        try:
            folder.mkdir(exist_ok=True)
            target = _free(folder, path.name)
            said = target.with_name(f"{target.name}.error")
            # First what is wrong: whoever is killed in between finds the file again, and none lies there unexplained.
            said.write_text(f"{bad.error}\n", encoding="utf-8", errors="replace")
            path.rename(target)
            if not self._is_still(f"{BAD}/{target.name}", bad.digest):  # another one came at that very moment
                os.link(target, _free(self._folder, path.name), follow_symlinks=False)  # and maybe a third one
                target.unlink()
                said.unlink(missing_ok=True)
                return ""
        except OSError as error:
            shown = as_text(str(path))
            raise SourceError(f"{shown} cannot be set aside in {folder}: {error.strerror}; it is left there") from error
        self._dealt.pop(path.name, None)
        return as_text(str(target))

    def _is_still(self, name: str, digest: str) -> bool:
        try:
            data = read_below(self._folder, name, most=most_bytes(self._settings) + 1)
        except FileNotFoundError:
            return False
        except OSError:
            return digest == UNREADABLE
        return digest_of(data) == digest


def _is_batch(name: str) -> bool:
    return not name.startswith(".") and name.lower().endswith(SUFFIXES)


def _signature(stat: os.stat_result) -> Signature:
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _free(folder: Path, name: str) -> Path:
    """A name in a folder that nothing has yet."""
    path, number = folder / name, 1
    while os.path.lexists(path):
        number += 1
        path = folder / f"{number}-{name}"
    return path
