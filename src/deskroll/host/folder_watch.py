"""FolderWatch: wakes whoever waits when something in a folder changes, so that nobody has to look all the time.

It uses the kernel's inotify. Guarantees: a change between two waits is not missed by the second. What the kernel does
not tell (a change on another machine of a network file system), and where it tells nothing (no inotify left for this
user), only the end of the wait wakes: whoever needs to be sure looks again then.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

_log = logging.getLogger(__name__)
_MODIFY, _CLOSE_WRITE, _MOVED_TO, _CREATE = 0x2, 0x8, 0x80, 0x100
_CHANGES = _MODIFY | _CLOSE_WRITE | _MOVED_TO | _CREATE
_READ = 1 << 16
_EVENT = struct.Struct("@iIII")
"""Of the kernel (inotify_event): watch, what happened, cookie, length of the name that follows."""


class FolderWatch:
    """Use with `async with`."""

    def __init__(self, folder: str | Path, concerns: Callable[[str], bool] = lambda name: True) -> None:
        """`concerns`: whether a change of the file of this name is one."""
        self._concerns = concerns
        self._folder = os.fspath(folder)
        self._fd: int | None = None
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        try:
            self._fd = _open(self._folder)
        except OSError as error:
            _log.debug("changes in %s are not told: %s", self._folder, error)
        else:
            asyncio.get_running_loop().add_reader(self._fd, self._hear)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

    async def wait(self, seconds: float) -> bool:
        """Wait for a change since the last wait, at most so long; whether there was one."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    def wake(self) -> None:
        """End the wait, as a change would."""
        self._changed.set()

    def _hear(self) -> None:
        assert self._fd is not None  # noqa: S101  (nobody reads it otherwise)
        try:
            while data := os.read(self._fd, _READ):
                if any(not name or self._concerns(name) for name in _names(data)):
                    self._changed.set()
        except BlockingIOError:
            pass


def _names(data: bytes) -> Iterator[str]:
    """Which files the kernel tells of; empty: it does not say."""
    at = 0
    while at < len(data):
        length = _EVENT.unpack_from(data, at)[-1]
        at += _EVENT.size + length
        yield os.fsdecode(data[at - length : at].rstrip(b"\0"))


def _open(folder: str) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if libc.inotify_add_watch(fd, os.fsencode(folder), _CHANGES) < 0:
        code = ctypes.get_errno()
        os.close(fd)
        raise OSError(code, os.strerror(code), folder)
    return fd
