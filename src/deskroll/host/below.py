"""Files below a folder, where their names come from a task, a run or a model: nothing outside of the folder is opened.

The folder itself is trusted, also where it is a link. Below it, `open_below` opens one part of a path after the other,
each within the one before, and follows no link: what is swapped for a link in between is refused as well, on every
kernel. `resolve_below` is for folders whose owner may use links (tasks): it follows them, as long as they stay below.
What is not a regular file (a pipe would keep its reader for ever) is refused.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class LeadsOut(OSError):
    """A path that leads out of its folder, by `..` or by a link."""


def open_below(root: str | Path, path: str) -> int:
    """A file descriptor of the plain file at a relative path below `root`; OSError where there is none."""
    found = _open(root, _parts(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, path)
    mode = os.fstat(found).st_mode
    if not stat.S_ISREG(mode):
        os.close(found)
        raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, "it is not a regular file", path)
    os.set_blocking(found, True)
    return found


def read_below(root: str | Path, path: str, start: int = 0, most: int = -1) -> bytes:
    """The content of a plain file below `root`, from byte `start` on; at most so many bytes, where that is said."""
    with os.fdopen(open_below(root, path), "rb") as file:
        file.seek(start)
        return file.read(most)


def check_folder_below(root: str | Path, path: str) -> None:
    """OSError unless there is a folder at a relative path below `root`, without a link on the way."""
    os.close(_open(root, _parts(path), _FOLDER, path))


def resolve_below(root: Path, path: str) -> Path:
    """Where a relative path below `root` leads, there or not, links followed; LeadsOut where that is outside."""
    try:
        real_root = root.resolve()
        real = (real_root / path).resolve()
    except (ValueError, RuntimeError) as error:  # a null byte; links in a circle
        raise OSError(errno.EINVAL, str(error), path) from None
    if os.path.isabs(path) or not real.is_relative_to(real_root):  # noqa: PTH117
        raise LeadsOut(errno.EXDEV, "it leads out of its folder", path)
    return real


def open_linked_below(root: Path, path: str) -> int:
    """The same as `open_below`, with links followed as long as they stay below."""
    return open_below(root, str(resolve_below(root, path).relative_to(root.resolve())))


def _parts(path: str) -> list[str]:
    parts = path.split("/")
    if not all(parts) or ".." in parts or "\0" in path:
        raise LeadsOut(errno.EXDEV, "no path below a folder", path)
    return [part for part in parts if part != "."]


def _open(root: str | Path, parts: list[str], flags: int, path: str) -> int:
    *folders, name = parts or ["."]
    within = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in folders:
            inner = _open_part(part, _FOLDER, within, path)
            os.close(within)
            within = inner
        return _open_part(name, flags, within, path)
    finally:
        os.close(within)


def _open_part(name: str, flags: int, within: int, path: str) -> int:
    try:
        return os.open(name, flags, 0o666, dir_fd=within)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP) and stat.S_ISLNK(os.lstat(name, dir_fd=within).st_mode):
            raise LeadsOut(errno.ELOOP, "a link is in that path", path) from None
        raise OSError(error.errno, error.strerror, path) from None
