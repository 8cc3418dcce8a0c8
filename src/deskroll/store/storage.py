"""Storage: the folder in which a run is kept, on a local path or in an object store, behind one small interface.

Paths are relative, with "/" between their parts, and never lead out of the root. Methods block: async code calls them
in a thread. `write_atomic` leaves the old content or the new one, durably, whatever is killed. Whatever the system
refuses becomes a StoreError that names the place and says what to do.
"""

from __future__ import annotations

import errno
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from deskroll.errors import StoreError, plain
from deskroll.host.home import expand_home

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


class Storage(ABC):
    """One folder, wherever it is."""

    root: str
    """What it was opened with: a path, or a URL."""
    local: bool
    """Whether it is a path of this machine, where files can be appended to and locked."""

    @staticmethod
    def at(root: str | Path) -> Storage:
        """The storage at a path, or at a URL such as `s3://bucket/folder`. Nothing is touched yet."""
        from deskroll.store.local import LocalStorage  # noqa: PLC0415  (both are Storages, and import this)

        text = expand_home(str(root))
        if (found := _URL.match(text)) is None:
            return LocalStorage(Path(text))
        if found[1] in ("file", "local"):
            return LocalStorage(Path(text[found.end() :]))
        from deskroll.store.objects import ObjectStorage  # noqa: PLC0415  (fsspec is an extra)

        return ObjectStorage(text)

    @abstractmethod
    def read(self, path: str, start: int = 0) -> bytes:
        """The file from byte `start` on."""

    def read_many(self, paths: Sequence[str]) -> list[bytes]:
        """Several whole files."""
        return [self.read(path) for path in paths]

    @abstractmethod
    def write_atomic(self, path: str, data: bytes) -> None:
        """Write or replace a whole file, folders above it included."""

    @abstractmethod
    def write_new(self, path: str, data: bytes) -> bool:
        """Write a whole file unless there is one; whether it was written. Of several who try, one succeeds."""

    @abstractmethod
    def upload(self, files: Mapping[str, str]) -> None:
        """Copy files of this machine: where each one lies, and its path here."""

    @abstractmethod
    def list(self, folder: str = "") -> list[str]:
        """Names in a folder, sorted; folders end in "/". Empty when there is no such folder."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether there is such a file."""

    @abstractmethod
    def size(self, path: str) -> int:
        """Bytes that a file holds."""

    def shown(self, path: str = "") -> str:
        """A path in a message."""
        return f"{self.root}/{path}" if path else self.root


def join(root: str | Path, name: str) -> str:
    """The path or URL of something below another one."""
    return f"{str(root).rstrip('/')}/{name}"


_ADVICE = {
    errno.ENOSPC: "the disk is full: make room, then resume the run",
    errno.EDQUOT: "your quota on that disk is used up: make room, then resume the run",
    errno.EROFS: "the file system is mounted read-only: remount it, or choose another output folder for a new run",
    errno.EACCES: "permission denied: mend its owner or mode, or choose another output folder for a new run",
    errno.EPERM: "permission denied: mend its owner or mode, or choose another output folder for a new run",
    errno.ENOENT: "there is no such file: check the path, or whether somebody removed it",
    errno.ENOTDIR: "a part of that path is a file: move it away, or choose another output folder for a new run",
    errno.EEXIST: "a file of that name is in the way: move it away, or choose another output folder for a new run",
    errno.EISDIR: "that is a folder, where a file is wanted: check the path",
    errno.EMFILE: "too many open files: raise `ulimit -n`, or run fewer episodes at a time",
    errno.ENFILE: "too many open files on this machine",
    errno.ENAMETOOLONG: "the path is too long: choose a shorter output folder for a new run",
    errno.ELOOP: "a link is in that path, and links in a run are not followed: it may lead anywhere",
    errno.EINVAL: "it is not a regular file: what made it is broken or hostile",
    errno.EIO: "the disk reports an error: look into the system's log, and save what can be read",
    errno.ESTALE: "the network file system lost the file: remount it, then resume the run",
}


def store_error(doing: str, where: str, error: OSError) -> StoreError:
    """What the system refused, as one sentence for a person."""
    advice = _ADVICE.get(error.errno or 0) or plain(error.strerror or str(error)) or type(error).__name__
    return StoreError(f"cannot {doing} {where}: {advice}")
