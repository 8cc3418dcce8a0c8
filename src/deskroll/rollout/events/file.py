"""EventFile: `events.jsonl` in a run's folder: the newest events, one JSON object a line, within a bound.

Guarantees: `put` neither waits nor raises. A full, slow or broken disk costs events and never the run: what cannot be
written in time is dropped, and said once. A later start of the run appends. At half of its bound the file becomes
`events.jsonl.1`, in the place of the one before.

On an object store nothing can be appended: there the newest lines are kept in memory and written at the end, behind
those of earlier starts; a coordinator that is killed leaves none.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from deskroll.errors import StoreError, plain
from deskroll.store import Storage
from deskroll.store.paths import EVENTS, OLDER_EVENTS

_MOST_WAITING = 16 * 2**20
_MOST_KEPT = 16 * 2**20
_CLOSE_S = 5.0
_log = logging.getLogger(__name__)


class EventFile:
    """Of one start of a run."""

    def __init__(self, storage: Storage, most: int) -> None:
        self._storage = storage
        self._most = most if storage.local else min(most, _MOST_KEPT)
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._task: asyncio.Task[None] | None = None
        self._failed = False

    def put(self, lines: bytes) -> None:
        """Have some lines written."""
        self._waiting.append(lines)
        self._size += len(lines)
        while self._size > (_MOST_WAITING if self._storage.local else self._most) and len(self._waiting) > 1:
            self._size -= len(self._waiting.popleft())
            if self._storage.local:
                self._tell("it is written too slowly")
        if self._storage.local and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._write())

    async def close(self) -> None:
        """Write what is left, if that can be done soon."""
        if not self._storage.local:
            self._task = asyncio.create_task(self._write())
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_CLOSE_S)

    async def _write(self) -> None:
        while self._waiting:
            data = b"".join(self._waiting)
            self._waiting.clear()
            self._size = 0
            try:
                await asyncio.to_thread(self._append if self._storage.local else self._replace, data)
            except (OSError, StoreError) as error:
                self._tell(plain(str(error)))

    def _append(self, data: bytes) -> None:
        path = Path(self._storage.root) / EVENTS
        size = path.stat().st_size if path.exists() else 0
        if size and size + len(data) > self._most // 2:
            path.replace(path.with_name(OLDER_EVENTS))
        with path.open("ab") as file:
            if file.tell() and _last_byte(path) != b"\n":  # whoever wrote before was killed
                file.write(b"\n")
            file.write(data)

    def _replace(self, data: bytes) -> None:
        old = self._storage.read(EVENTS) if self._storage.exists(EVENTS) else b""
        whole = old + data
        if len(whole) > self._most:
            whole = whole[-self._most :].partition(b"\n")[2]
        self._storage.write_atomic(EVENTS, whole)

    def _tell(self, why: str) -> None:
        if not self._failed:
            self._failed = True
            _log.warning("events are missing from %s: %s", self._storage.shown(EVENTS), why)


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1)


def read_lines(storage: Storage) -> Iterator[bytes]:
    """The lines in a run's folder, oldest first; one that was being written when its writer died is left out."""
    for name in (OLDER_EVENTS, EVENTS):
        if storage.exists(name):
            whole, _, _ = storage.read(name).rpartition(b"\n")
            yield from filter(None, whole.split(b"\n"))
