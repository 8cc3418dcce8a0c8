"""AppendedFile: a file of JSON lines in a run's folder that only grows, kept by one process at a time.

Guarantees: what `append` has returned for is durable; a line that was being written when its writer died is cut off by
the next one. Methods block, and wait for each other: no file is closed under its writer. On a local path only: an
object store cannot append.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading

from deskroll.errors import InputError, StoreError
from deskroll.store import journal
from deskroll.store.commit import sync, write_all
from deskroll.store.local import LocalStorage
from deskroll.store.storage import store_error


class AppendedFile:
    """Call `open` first, `close` in any case."""

    def __init__(self, storage: LocalStorage, path: str) -> None:
        self._storage = storage
        self._path = storage.path(path)
        self._fd: int | None = None
        self._size = 0
        self._torn = False
        """Whether something is behind its whole lines that could not be cut off."""
        self._using = threading.Lock()

    def open(self, in_use: str) -> bytes:
        """Take it: its whole lines; raises `InputError` with `in_use` where another process has it."""
        folder = self._path.rpartition("/")[0]
        try:
            self._storage.make_folder(folder)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(self._path, flags, 0o666)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            data = self._read()
            sync(folder)
        except BlockingIOError:
            self.close()
            raise InputError(in_use) from None
        except OSError as error:
            self.close()
            raise store_error("open", self._path, error) from error
        return data

    def append(self, lines: bytes) -> None:
        """Append whole lines durably; StoreError when that fails, and then nothing of them is there."""
        with self._using:
            if self._fd is None:
                raise StoreError(f"{self._path} is closed: nothing more can be written to it")
            try:
                if self._torn:
                    self._cut(self._fd)
                self._torn = True
                write_all(self._fd, lines)
                os.fdatasync(self._fd)
            except OSError as error:
                with contextlib.suppress(OSError):  # else the next write does it, or whoever opens it next
                    self._cut(self._fd)
                raise store_error("write", self._path, error) from error
            self._size, self._torn = self._size + len(lines), False

    def close(self) -> None:
        """Let go, so that another process may have it."""
        with self._using:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def _cut(self, fd: int) -> None:
        os.ftruncate(fd, self._size)
        self._torn = False

    def _read(self) -> bytes:
        assert self._fd is not None  # noqa: S101
        with os.fdopen(os.dup(self._fd), "rb") as file:
            file.seek(0)
            data = file.read()
        self._size = journal.whole(data)
        if self._size < len(data):
            os.ftruncate(self._fd, self._size)
        return data[: self._size]
