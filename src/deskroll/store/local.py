"""A run's folder on a local path: direct system calls, durable when a method returns. No link in it is followed.

`commits` is where the attempts of this process that end at the same time are made durable together.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from deskroll.host.below import read_below
from deskroll.store.commit import Commits, sync, write_all
from deskroll.store.paths import inside
from deskroll.store.storage import Storage, store_error


class LocalStorage(Storage):
    """A folder of this machine."""

    local = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.root = str(self.folder)
        self.commits = Commits(self.root)

    def path(self, path: str) -> str:
        """The absolute path of something below the root."""
        return f"{self.root}/{inside(path)}" if path else self.root

    def read(self, path: str, start: int = 0) -> bytes:
        """The file from byte `start` on."""
        with self._named("read", path):
            return read_below(self.root, inside(path), start)

    def write_atomic(self, path: str, data: bytes) -> None:
        """Write another file beside it, durably, and rename that one."""
        target = self.path(path)
        folder, _, name = target.rpartition("/")
        part = f"{folder}/.{name}.{threading.get_native_id()}.part"  # several threads may write the same file
        with self._named("write", path):
            self.make_folder(folder)
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            try:
                _fill(fd, data)
                os.rename(part, target)  # noqa: PTH104  (no Path is made where many attempts end)
            except OSError:
                Path(part).unlink(missing_ok=True)
                raise
            sync(folder)

    def write_new(self, path: str, data: bytes) -> bool:
        """Write a file that must not be there yet."""
        target = self.path(path)
        with self._named("write", path):
            self.make_folder(target.rpartition("/")[0])
            try:
                fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            except FileExistsError:
                return False
            _fill(fd, data)
            sync(target.rpartition("/")[0])
        return True

    def upload(self, files: Mapping[str, str]) -> None:
        """Copy files."""
        for source, path in files.items():
            with self._named("read", path):
                data = Path(source).read_bytes()
            self.write_atomic(path, data)

    def list(self, folder: str = "") -> list[str]:
        """Names in a folder, sorted; folders end in "/"."""
        with self._named("read", folder):
            try:
                with os.scandir(self.path(folder)) as found:
                    return sorted(each.name + "/" if each.is_dir() else each.name for each in found)
            except FileNotFoundError:
                return []

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""
        with self._named("look at", path):
            return os.path.lexists(self.path(path))

    def size(self, path: str) -> int:
        """Bytes that a file holds."""
        with self._named("look at", path):
            return os.stat(self.path(path)).st_size  # noqa: PTH116

    def make_root(self) -> None:
        """Make the root itself."""
        with self._named("make", ""):
            self.make_folder(self.root)

    def make_folder(self, folder: str) -> None:
        """Make a folder and those above it, each durably; nothing where it is there."""
        if not os.path.isdir(folder):  # noqa: PTH112
            above = folder.rpartition("/")[0]
            self.make_folder(above or "/")
            Path(folder).mkdir(exist_ok=True)
            sync(above or "/")

    @contextmanager
    def _named(self, doing: str, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise store_error(doing, self.shown(path), error) from error


def _fill(fd: int, data: bytes) -> None:
    """Write a whole file durably, and close it."""
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
