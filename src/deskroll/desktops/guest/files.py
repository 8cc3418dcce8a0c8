"""Files of the desktop, as requests name them: expanded like a shell would, read and written within limits.

A guest can do what the desktop's user can do, no more; the checks here are for requests that would hang or flood it:
devices, pipes, endless folders.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from deskroll.desktops.guest.requests import BadRequest
from deskroll.types import Record

MAX_FILE = 1024 * 1024 * 1024
"""Bytes of a file that can be read or written in one request."""
MAX_ENTRIES = 50_000
MAX_DEPTH = 40


class Entry(Record, frozen=True):
    """A file or folder in a listing, as OSWorld's server writes it."""

    type: str
    name: str
    children: list[Entry] | None = None


def expand(path: str, env: Mapping[str, str], home: Path) -> Path:
    """A request's path: `~`, `$VARIABLES`, and relative to the home folder."""
    if "\0" in path or not path:
        raise BadRequest("a path must be some text without NUL bytes")
    if path == "~" or path.startswith("~/"):
        path = f"{home}{path[1:]}"
    path = re.sub(r"\$\{?(\w+)\}?", lambda match: env.get(match[1], match[0]), path)
    return home / path


def open_regular(path: Path) -> int:
    """Open a file for reading. Raises `BadRequest` unless it is a plain file of bearable size."""
    # Non-blocking: opening a named pipe would otherwise wait for a writer.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    info = os.fstat(file)
    if not stat.S_ISREG(info.st_mode):
        os.close(file)
        raise BadRequest(f"{path} is not a regular file")
    if info.st_size > MAX_FILE:
        os.close(file)
        raise BadRequest(f"{path} has {info.st_size} bytes; at most {MAX_FILE} can be read", status=413)
    return file


def list_folder(folder: Path) -> Entry:
    """A folder and what is below it. Links are named, not followed."""
    left = [MAX_ENTRIES]

    def walk(path: Path, depth: int) -> Entry:
        children: list[Entry] = []
        with os.scandir(path) as entries:
            for entry in entries:
                left[0] -= 1
                if left[0] < 0:
                    raise BadRequest(
                        f"{folder} holds more than {MAX_ENTRIES} files; list a folder below it", status=413
                    )
                if entry.is_dir(follow_symlinks=False) and depth < MAX_DEPTH:
                    children.append(_walk_or_empty(Path(entry.path), depth + 1))
                else:
                    children.append(Entry(type="file", name=entry.name))
        return Entry(type="directory", name=path.name, children=children)

    def _walk_or_empty(path: Path, depth: int) -> Entry:
        try:
            return walk(path, depth)
        except PermissionError:
            return Entry(type="directory", name=path.name, children=[])

    return walk(folder, 0)
