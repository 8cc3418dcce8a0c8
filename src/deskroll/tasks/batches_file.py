"""FileSource: one file, `{type: [ids]}` with its root (or a list of tasks), which is a batch whenever it has changed.

Guarantees: as a folder's files, it is read once it rests, and as one piece. It is never touched: what is bad of it is
kept as a copy, with what is wrong beside it.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from deskroll.errors import InputError
from deskroll.tasks.aside import keep_aside
from deskroll.tasks.batches import (
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
from deskroll.tasks.reading import is_folder, text_of


class FileSource(Source):
    """See `Source`."""

    def __init__(self, settings: SourceSettings, aside: Path) -> None:
        self._path = Path(settings.at).absolute()
        self.folder: Path | None = self._path.parent
        self._settings = settings
        self._root = Path(settings.root).absolute() if settings.root else None
        self._aside = aside
        self._rest_s = settings.rest_ms / 1000
        self._look: tuple[object, float] = (None, 0.0)
        """What it looked like last, and since when."""
        self._dealt: object = None
        self._bad = b""
        """What it held when it was bad last."""
        self._unsettled: float | None = None
        if not is_folder(self._path.parent):
            raise InputError(f"source: there is no folder {self._path.parent}, in which {self._path.name} could be")
        if is_folder(self._path):
            raise InputError(
                f"source: {self._path} is a folder, and its name ends as a file's does; name a file, or rename it"
            )

    def check_there(self) -> None:
        """Of one that nobody has taken a batch from yet: a file that is not there is a wrong name, most likely."""
        if not self._path.exists():
            raise InputError(
                f"source: there is no file {self._path}; write it first, or name a folder, into which batches may come "
                "at any time"
            )

    def concerns(self, name: str) -> bool:
        """See `Source`."""
        return name == self._path.name

    @property
    def unsettled_s(self) -> float | None:
        """See `Source`."""
        return self._unsettled

    async def poll(self, knows: Knows) -> TaskBatch | BadBatch | None:
        """See `Source`."""
        return await asyncio.to_thread(self._poll, knows)

    async def set_aside(self, bad: BadBatch) -> str:
        """See `Source`."""
        data = self._bad if digest_of(self._bad) == bad.digest else b""
        return await asyncio.to_thread(keep_aside, self._aside, self._path.name, bad, data)

    def _poll(self, knows: Knows) -> TaskBatch | BadBatch | None:
        self._unsettled, now = None, time.monotonic()
        try:
            signature = _signature(self._path)
            if signature == self._dealt:
                return None
            if signature != self._look[0]:
                self._look = (signature, now)
            if (left := self._look[1] + self._rest_s - now) > 0:
                self._unsettled = left
                return None
            with self._path.open("rb") as file:
                data = file.read(most_bytes(self._settings) + 1)
            if _signature(self._path) != signature:
                self._unsettled = self._rest_s
                return None
        except FileNotFoundError:  # it may come
            return None
        except OSError as error:
            raise SourceError(f"source: {self._path} cannot be read: {error.strerror}") from error
        self._dealt = signature
        name = BatchName(id=as_text(self._path.name), digest=digest_of(data))
        return None if knows(name) else self._batch(name, data)

    def _batch(self, name: BatchName, data: bytes) -> TaskBatch | BadBatch:
        self._bad = data  # also where it is good: what its tasks lack may show later
        try:
            check_size(data, self._settings, str(self._path))
            tasks = parse_tasks(text_of(data, str(self._path)), self._path, root=self._root)
        except (InputError, UnicodeEncodeError) as error:
            return bad_batch(name, error)
        return TaskBatch(id=name.id, digest=name.digest, tasks=tuple(tasks))


def _signature(path: Path) -> tuple[int, int, int]:
    found = os.stat(path)  # noqa: PTH116
    return found.st_ino, found.st_size, found.st_mtime_ns
