"""Group commit: attempts that end at the same time are made durable together, in one visit to a thread.

A commit is: every file durable, then the manifest under its own name, then the folder durable. With few files that is
an `fsync` for each. From `TOGETHER` files on, one `syncfs` stands for all of the files and a second one for the
folders, where the file system is known to report errors by it. A `syncfs` also writes what others left in the same file
system; where that takes long, `fsync` is used for a while.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import os
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deskroll.errors import StoreError
from deskroll.store.storage import store_error

TOGETHER = 8
"""Files in a batch from which on two `syncfs` are cheaper than an `fsync` for each."""
SLOW_S = 0.1
"""A `syncfs` that takes longer writes other people's data ..."""
PAUSE_S = 30.0
"""... and is not used again for so long."""
GATHER_S = 0.02
"""How long a commit waits for others to share its syncs with."""
_JOURNALLING = frozenset({"ext4", "xfs", "btrfs"})
"""File systems where `syncfs` writes everything and reports errors, and an `fsync` also covers the folders above."""
_REPORTING_SINCE = (5, 8)
"""The kernel since which `syncfs` reports errors at all."""


@dataclass
class Commit:
    """What one attempt wants to be made durable."""

    folder: str
    """Its folder; those above it may be new as well."""
    files: Sequence[str]
    folders: Sequence[str]
    """Folders within its own."""
    rename: tuple[str, str]
    """The manifest, as it is called and as it shall be called when all else is durable."""
    error: OSError | None = None
    """Why it could not be made durable."""
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Commits:
    """The commits below one root, in this process."""

    def __init__(self, root: str) -> None:
        self.rounds = 0
        """Visits to the thread so far."""
        self.cpu_s = 0.0
        """What those that are over took of a core, in seconds."""
        self._work_s = 0.0
        """How long those took that are over."""
        self._visit_at: float | None = None
        self._root = root
        self._fd: int | None = None
        self._journalling = False
        self._waiting: list[Commit] = []
        self._at_work: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._not_before = 0.0

    @property
    def work_s(self) -> float:
        """How long the thread has worked so far, in seconds: one visit after another."""
        since = self._visit_at
        return self._work_s + (0.0 if since is None else time.monotonic() - since)

    def prepare(self) -> None:
        """To be called before anything is written: `syncfs` reports what went wrong since its file was opened."""
        if self._fd is None:
            self._fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._fd)
            self._journalling = is_journalling(self._root)

    async def add(self, commit: Commit) -> None:
        """Return when the commit is durable; StoreError when it cannot be made so."""
        self._waiting.append(commit)
        if self._at_work is None and self._timer is None:
            self._gather()
        await commit.done

    def _gather(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(GATHER_S, self._next)

    def _next(self) -> None:
        self._timer = None
        batch, self._waiting = self._waiting, []
        loop = asyncio.get_running_loop()
        try:
            self._at_work = loop.run_in_executor(None, self._make_durable, batch)
        except RuntimeError as error:  # the threads are gone, or no more can be started
            self._at_work = loop.create_future()
            self._at_work.set_exception(StoreError(f"cannot make attempts in {self._root} durable: {error}"))
        self._at_work.add_done_callback(lambda work: self._ended(batch, work))

    def _ended(self, batch: list[Commit], work: asyncio.Future[None]) -> None:
        failed = StoreError("the event loop was closed") if work.cancelled() else work.exception()
        for commit in batch:
            if commit.done.done():  # whoever waited was cancelled
                continue
            if failed is not None:
                commit.done.set_exception(failed)
            elif commit.error is not None:
                commit.done.set_exception(store_error("make durable", commit.folder, commit.error))
            else:
                commit.done.set_result(None)
        self._at_work = None
        if self._waiting:
            self._gather()

    def _make_durable(self, batch: list[Commit]) -> None:
        self.rounds += 1
        self._visit_at = begun = time.monotonic()
        on_core = time.thread_time()
        many = sum(len(commit.files) for commit in batch) >= TOGETHER
        if many and self._journalling and time.monotonic() >= self._not_before:
            self._all_at_once(batch)
        else:
            for commit in batch:
                self._one(commit)
        self._visit_at = None
        self._work_s += time.monotonic() - begun
        self.cpu_s += time.thread_time() - on_core

    def _all_at_once(self, batch: list[Commit]) -> None:
        begun = time.monotonic()
        try:
            self._syncfs()
            for commit in batch:
                _rename(commit)
            self._syncfs()
        except OSError as error:
            for commit in batch:
                commit.error = error
        if time.monotonic() - begun > SLOW_S:
            self._not_before = time.monotonic() + PAUSE_S

    def _one(self, commit: Commit) -> None:
        try:
            for path in (*commit.files, *commit.folders):
                sync(path)
            os.rename(*commit.rename)  # noqa: PTH104
            sync(commit.folder)
            above = commit.folder
            while not self._journalling and len(above) > len(self._root):
                above = above.rpartition("/")[0]
                sync(above)
        except OSError as error:
            commit.error = error

    def _syncfs(self) -> None:
        if _libc().syncfs(self._fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _rename(commit: Commit) -> None:
    try:
        os.rename(*commit.rename)  # noqa: PTH104
    except OSError as error:  # somebody removed its folder: no harm to the others
        commit.error = error


def write_all(fd: int, data: bytes) -> None:
    """Write everything: a disk that is about to be full takes a part at first."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, data[written:])


def sync(path: str) -> None:
    """Make a file's content durable, or a folder's names."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def is_journalling(root: str) -> bool:
    """Whether a folder's file system is one of those that are known well enough to sync it as a whole."""
    release = os.uname().release.split("-")[0].split(".")
    if tuple(int(each) if each.isdigit() else 0 for each in release[:2]) < _REPORTING_SINCE:
        return False
    try:
        device = os.stat(root).st_dev  # noqa: PTH116
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return False
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts:
        fields = line.split()
        if fields[2] == wanted and "-" in fields:
            return fields[fields.index("-") + 1] in _JOURNALLING
    return False
