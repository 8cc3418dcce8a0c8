"""The lock of a run on a local path: who runs it, held until the last process that inherited it is gone.

`flock` on `.lock`, whose content says who holds it. Worker processes are given the open file (`fd`), so that a resume
waits for orphans of a killed coordinator, too.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import time

import msgspec

from deskroll.errors import StoreError, plain
from deskroll.store import paths
from deskroll.store.local import LocalStorage
from deskroll.store.storage import store_error
from deskroll.types import Record

_PAUSE_S = 0.05
"""Between two looks at a lock that somebody holds: `flock` cannot be waited for and given up."""


class Holder(Record, frozen=True):
    """Who holds a run."""

    pid: int
    host: str
    since: float
    """Seconds since the epoch."""
    socket: str = ""
    """Where the coordinator answers; empty where it does not."""


def this_process(socket_path: str = "") -> Holder:
    """Ourselves, from now on."""
    return Holder(pid=os.getpid(), host=socket.gethostname(), since=time.time(), socket=socket_path)


class Lock:
    """The lock, once it is held."""

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self._path = path

    @classmethod
    async def acquire(cls, storage: LocalStorage, wait_s: float) -> Lock:
        """Wait for the lock, take it and write down that it is ours."""
        path = storage.path(paths.LOCK)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise store_error("open", path, error) from error
        try:
            await _wait(fd, storage, wait_s)
            lock = cls(fd, path)
            lock.note(this_process())
        except BaseException:
            os.close(fd)
            raise
        return lock

    def note(self, holder: Holder) -> None:
        """Rewrite what the file says about who holds it."""
        try:
            data = msgspec.json.encode(holder) + b"\n"
            os.pwrite(self.fd, data, 0)
            os.ftruncate(self.fd, len(data))
        except OSError as error:
            raise store_error("write", self._path, error) from error

    def release(self) -> None:
        """Let go; workers that inherited the file still hold the lock."""
        os.close(self.fd)


def holder(storage: LocalStorage) -> Holder | None:
    """Who runs a run at this moment; None when nobody does."""
    try:
        fd = os.open(storage.path(paths.LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # A shared lock, for a moment: it is only had where nobody runs it.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(fd)
    finally:
        os.close(fd)
    return None


async def _wait(fd: int, storage: LocalStorage, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while not _try(fd):
        if time.monotonic() >= deadline:
            raise StoreError(_in_use(storage, fd, wait_s))
        await asyncio.sleep(_PAUSE_S)


def _try(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(fd: int) -> Holder:
    try:
        return msgspec.json.decode(os.pread(fd, 65536, 0), type=Holder)
    except msgspec.MsgspecError:  # it is being written at this moment
        return Holder(pid=0, host="", since=0.0)


def _in_use(storage: LocalStorage, fd: int, wait_s: float) -> str:
    by = _read(fd)
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(by.since))
    whom = f"process {by.pid} on {plain(by.host)} since {since}" if by.pid else "another process"
    return (
        f"{storage.shown()} is in use by {whom}, or by workers that it left behind; waited {wait_s:g} s. "
        "Wait until it has ended, or stop it, then resume"
    )
