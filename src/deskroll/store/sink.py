"""Where the journal's lines go. Methods block; one process at a time uses a sink, since it holds the run.

On a local path: one file that only grows. What a failed write left behind is cut off again, so that the file always
ends with the last line that was made durable.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Protocol

from deskroll.store import paths
from deskroll.store.commit import sync, write_all
from deskroll.store.journal_bytes import read_journal
from deskroll.store.local import LocalStorage
from deskroll.store.mending import read_checked
from deskroll.store.storage import store_error


class JournalSink(Protocol):
    """Takes lines, durably."""

    pace_s: float
    """Least time between two calls of `append`."""

    def open(self) -> tuple[bytes, int]:
        """Take the journal: what it holds, torn lines cut off, and the least epoch that is free."""

    def append(self, lines: bytes) -> None:
        """Make whole lines durable; StoreError when that fails."""

    def finish(self) -> None:
        """All is written: have it in `journal.jsonl`."""

    def close(self) -> None:
        """Let go, whatever happened before."""


class JournalFile:
    """The journal on a local path."""

    pace_s = 0.02

    def __init__(self, storage: LocalStorage) -> None:
        self._storage = storage
        self._path = storage.path(paths.JOURNAL)
        self._fd: int | None = None
        self._size = 0

    def open(self) -> tuple[bytes, int]:
        """What is there; a torn last line is cut off."""
        checked = read_checked(self._storage)
        checked.log()
        if checked.damage:
            _keep_damaged(self._storage)
        if checked.damage or self._storage.list(paths.JOURNAL_PARTS):
            self._storage.write_atomic(paths.JOURNAL, checked.data)
            _put_parts_away(self._storage)
        self._size = len(checked.data)
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            sync(self._storage.root)
            if self._size < os.fstat(self._fd).st_size:
                os.ftruncate(self._fd, self._size)
        except OSError as error:
            raise store_error("open", self._path, error) from error
        return checked.data, 1

    def append(self, lines: bytes) -> None:
        """Append lines durably."""
        assert self._fd is not None  # noqa: S101  (it was opened)
        try:
            write_all(self._fd, lines)
            os.fdatasync(self._fd)
        except OSError as error:
            self._cut_off()
            raise store_error("write", self._path, error) from error
        self._size += len(lines)

    def finish(self) -> None:
        """It is there already."""

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _cut_off(self) -> None:
        assert self._fd is not None  # noqa: S101
        # Where the disk refuses that, too, readers skip a torn line, and the next writer cuts it off.
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, self._size)


def _keep_damaged(storage: LocalStorage) -> None:
    """Keep the journal as it was found, before it is put right."""
    number = 1
    while not storage.write_new(f"{paths.JOURNAL}.damaged-{number}", read_journal(storage)):
        number += 1


def _put_parts_away(storage: LocalStorage) -> None:
    """Where a run was copied from an object store, its journal may lie in parts: from now on it is one file."""
    if storage.list(paths.JOURNAL_PARTS):
        try:
            Path(storage.path(paths.JOURNAL_PARTS)).rename(storage.path(f"{paths.JOURNAL_PARTS}.gathered"))
        except OSError as error:
            raise store_error("rename", storage.shown(paths.JOURNAL_PARTS), error) from error
